package main

import (
	"crypto/x509"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"dshproxy/rules/live"

	"github.com/spf13/cobra"
)

type envFlags struct {
	proxyFlags
	shell, ca string
	clients   []string
}

func (a *app) envCommand() *cobra.Command {
	var f envFlags
	c := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that send programs through a running proxy",
		Long: "Print the variables that send programs through a running proxy. Its address is that of --proxy, else of\n" +
			"--ready-file, else the first listener of the settings. Programs that need more than variables, or variables\n" +
			"that have side effects, are named with --for; their settings are printed as comments.",
		Example: "  eval \"$(dshproxy env)\"\n" +
			"  dshproxy env --shell fish | source\n" +
			"  dshproxy env --shell powershell | Out-String | Invoke-Expression",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.env(&f) },
	}
	f.register(c)
	c.Flags().StringVar(&f.shell, "shell", "sh", "sh, fish, powershell or json")
	c.Flags().StringVar(&f.ca, "ca", "", "PEM file with the authorities to trust; most clients then trust no others")
	c.Flags().StringSliceVar(&f.clients, "for", nil, "clients that need more: "+strings.Join(clientNames(), ", "))
	return c
}

// clientEnv is what env prints.
type clientEnv struct {
	variables []variable
	files     []clientFile
	notes     []string
}

func (a *app) env(f *envFlags) error {
	if _, ok := shells[f.shell]; !ok && f.shell != "json" {
		return usageError("", "--shell: want one of sh, fish, powershell, json, not %q", f.shell)
	}
	for _, name := range f.clients {
		if !slices.Contains(clientNames(), name) {
			return usageError("", "--for: want some of %s, not %q", strings.Join(clientNames(), ", "), name)
		}
	}
	s, err := f.scene(a)
	if err != nil {
		return err
	}
	inspects := false
	if f.ca == "" {
		err := a.settings.load(a.config, a.flags)
		if err != nil && f.proxy == "" {
			return err
		}
		inspects = err == nil && len(a.settings.inspectDomains) > 0 // settings that cannot be read are not those of --proxy
	}
	if inspects {
		if f.ca, err = caBundle(a.settings.inspectCA); err != nil {
			return &exitError{exitFailure, fmt.Errorf("inspect.caFile: %w", err), "dshproxy ca init makes it"}
		}
		s.ca = true
	}
	e := baseEnv(s)
	if f.ca != "" {
		if err := e.trust(f.ca); err != nil {
			return err
		}
	}
	for _, b := range clientBlocks() {
		if !slices.Contains(f.clients, b.name) {
			continue
		}
		if err := b.add(&e, s); err != nil {
			return &exitError{exitFailure, fmt.Errorf("--for %s: %w", b.name, err), ""}
		}
	}
	for _, v := range e.variables {
		if !utf8.ValidString(v.value) {
			return usageError("", "the value of %s would be no UTF-8", v.name) // it may be a token: not quoted
		}
	}
	return e.write(a.io, f.shell)
}

// envScene is what the variables are made of.
type envScene struct {
	proxy   proxyAddr
	token   *proxyToken
	ca      bool   // authorities were given
	connect string // a command for sh that connects through the proxy, for ssh's %h and %p
}

func (s envScene) url() string { return s.proxy.withToken(s.token) }

func (f *envFlags) scene(a *app) (envScene, error) {
	p, err := f.find(a, false)
	if err != nil {
		return envScene{}, err
	}
	if p.scheme == "unix" {
		return envScene{}, usageError("let it listen on a TCP port too; dshproxy connect takes --proxy unix:PATH",
			"the proxy listens on a unix socket, which no variable can name")
	}
	token, err := f.token()
	if err != nil {
		return envScene{}, err
	}
	connect, err := f.connectCommand(p)
	return envScene{p, token, f.ca != "", connect}, err
}

// noProxy are the hosts that clients reach themselves. Most do not leave out loopback on their own, and two spellings of
// one network would be read differently.
const noProxy = "localhost,127.0.0.1,::1"

// baseEnv has what clients honour without side effects. Both cases: wget, apt and gRPC's C core read lower case alone,
// and where both are read, clients differ in which one wins. ALL_PROXY is not socks5h, at which some clients fail.
func baseEnv(s envScene) clientEnv {
	url := s.url()
	e := clientEnv{}
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		e.set(name, url)
		e.set(strings.ToUpper(name), url)
	}
	e.set("no_proxy", noProxy)
	e.set("NO_PROXY", noProxy)
	e.set("NODE_USE_ENV_PROXY", "1")
	e.set("YARN_HTTP_PROXY", url)
	e.set("YARN_HTTPS_PROXY", url)
	e.set("grpc_proxy", url)
	e.set("no_grpc_proxy", noProxy)
	if s.token != nil {
		e.note("the token is in these variables: every other process of this user can read it, and so can every program that is started with them")
	}
	if s.proxy.scheme == "https" {
		e.note("not every client speaks TLS to a proxy: wget, Java and gRPC do not")
	}
	return e
}

func (e *clientEnv) set(name, value string) { e.variables = append(e.variables, variable{name, value}) }
func (e *clientEnv) note(text string)       { e.notes = append(e.notes, text) }

// The variables that name a file of authorities. Those that add keep the client's own beside it.
var (
	caReplaces = []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
		"NPM_CONFIG_CAFILE", "YARN_HTTPS_CA_FILE_PATH", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
	}
	caAdds = []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"}
)

const maxCAFile = 8 << 20

// trust adds the variables that make clients trust the authorities in a PEM file.
func (e *clientEnv) trust(file string) error {
	path, err := absolute(file)
	if err != nil {
		return err
	}
	text, err := live.ReadNamed(path, maxCAFile)
	if err != nil {
		return fmt.Errorf("--ca: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return usageError("", "--ca: %s has no certificate in PEM", filepath.ToSlash(path))
	}
	for _, name := range slices.Concat(caAdds, caReplaces) {
		e.set(name, path)
	}
	e.note(strings.Join(caAdds, " and ") + " add to the authorities that a client has")
	e.note("the other variables replace them: for servers that the proxy does not inspect, the file must hold the system's authorities too")
	return nil
}

// write prints variables first and comments last, so that a forgotten pair of quotes around $(...) costs only comments.
func (e *clientEnv) write(io stdio, shell string) error {
	if shell == "json" {
		for _, n := range e.notes {
			fmt.Fprintf(io.err, "dshproxy: note: %s\n", n)
		}
		return writeJSON(io.out, e.variables, e.files)
	}
	return e.writeScript(io.out, shells[shell])
}

func (e *clientEnv) writeScript(w io.Writer, line func(variable) string) error {
	var b strings.Builder
	for _, v := range e.variables {
		b.WriteString(line(v) + "\n")
	}
	for _, n := range e.notes {
		writeComment(&b, n)
	}
	for _, f := range e.files {
		writeComment(&b, "in "+f.File+":")
		for l := range strings.SplitSeq(f.Text, "\n") {
			writeComment(&b, "  "+l)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
