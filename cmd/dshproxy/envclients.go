package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// clientFile is a piece of a client's own settings.
type clientFile struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// clientBlock is what a client needs beyond the variables that all get.
type clientBlock struct {
	name string
	add  func(*clientEnv, envScene) error
}

func clientBlocks() []clientBlock {
	return []clientBlock{
		{"apt", aptBlock},
		{"cargo", func(e *clientEnv, s envScene) error { e.set("CARGO_HTTP_PROXY", s.url()); return nil }},
		{"docker", dockerBlock},
		{"gcloud", gcloudBlock},
		{"git", gitBlock},
		{"java", javaBlock},
		{"npm", npmBlock},
		{"ssh", sshBlock},
	}
}

func clientNames() []string {
	var out []string
	for _, b := range clientBlocks() {
		out = append(out, b.name)
	}
	return out
}

// aptBlock is for apt under sudo, which drops the variables.
func aptBlock(e *clientEnv, s envScene) error {
	e.files = append(e.files, clientFile{
		"/etc/apt/apt.conf.d/90dshproxy",
		fmt.Sprintf("Acquire::http::Proxy \"%s\";\nAcquire::https::Proxy \"%[1]s\";", s.url()),
	})
	return nil
}

// dockerBlock has the settings of the command, which go into containers and builds, and of the daemon, which pulls.
func dockerBlock(e *clientEnv, s envScene) error {
	type proxies map[string]any
	url := s.url()
	for _, f := range []struct {
		file    string
		content proxies
	}{
		{"~/.docker/config.json", proxies{"proxies": proxies{"default": proxies{"httpProxy": url, "httpsProxy": url, "noProxy": noProxy}}}},
		{"/etc/docker/daemon.json", proxies{"proxies": proxies{"http-proxy": url, "https-proxy": url, "no-proxy": noProxy}}},
	} {
		text, err := json.MarshalIndent(f.content, "", "  ")
		if err != nil {
			return err
		}
		e.files = append(e.files, clientFile{f.file, string(text)})
	}
	if s.proxy.target.Addr.IsLoopback() {
		e.note("in a container, " + s.proxy.target.Host + " is the container itself: let the proxy listen on an address that containers reach")
	}
	return nil
}

func gcloudBlock(e *clientEnv, s envScene) error {
	e.set("CLOUDSDK_PROXY_TYPE", "http")
	e.set("CLOUDSDK_PROXY_ADDRESS", s.proxy.target.Host)
	e.set("CLOUDSDK_PROXY_PORT", s.port())
	if s.token != nil {
		e.set("CLOUDSDK_PROXY_USERNAME", s.token.name)
		e.set("CLOUDSDK_PROXY_PASSWORD", s.token.secret)
	}
	return nil
}

// gitBlock sends git's ssh remotes through the proxy; its HTTP remotes need no more than the variables.
func gitBlock(e *clientEnv, s envScene) error {
	if s.connect == "" {
		return errProgramPath
	}
	e.set("GIT_SSH_COMMAND", "ssh -o "+quoteSh("ProxyCommand="+s.connect))
	return nil
}

// javaBlock is not for everybody: every virtual machine that starts prints that it saw the variable.
func javaBlock(e *clientEnv, s envScene) error {
	if s.proxy.scheme != "http" {
		return errors.New("a proxy behind TLS is out of Java's reach")
	}
	var options []string
	for _, scheme := range []string{"http", "https"} {
		options = append(options, "-D"+scheme+".proxyHost="+s.proxy.target.Host, "-D"+scheme+".proxyPort="+s.port())
	}
	e.set("JAVA_TOOL_OPTIONS", strings.Join(append(options, "-Dhttp.nonProxyHosts=localhost|127.*|[::1]"), " "))
	if s.ca {
		e.note("Java reads no PEM file: import the authorities of --ca with keytool")
	}
	if s.token != nil {
		e.note("Java has no option for the token: its connections are anonymous")
	}
	return nil
}

// npmBlock overrides what an .npmrc says.
func npmBlock(e *clientEnv, s envScene) error {
	e.set("npm_config_proxy", s.url())
	e.set("npm_config_https_proxy", s.url())
	e.set("npm_config_noproxy", noProxy)
	return nil
}

func sshBlock(e *clientEnv, s envScene) error {
	if s.connect == "" {
		return errProgramPath
	}
	e.files = append(e.files, clientFile{"~/.ssh/config", "Host *\n  ProxyCommand " + s.connect})
	return nil
}

func (s envScene) port() string { return strconv.Itoa(int(s.proxy.target.Port)) }

var errProgramPath = errors.New("a path of the command has a control character, which ssh cannot take")

// connectCommand gives the ProxyCommand for ssh, which hands it to the user's shell; empty when a path cannot stand in
// a line. The token stays in its file.
func (f *proxyFlags) connectCommand(p proxyAddr) (string, error) {
	words := []string{ownProgram(), "connect", "--proxy", p.url()}
	if f.tokenFile != "" {
		path, err := absolute(f.tokenFile)
		if err != nil {
			return "", err
		}
		words = append(words, "--token-file", path)
		if f.tokenName != "" {
			words = append(words, "--token-name", f.tokenName)
		}
	}
	for i, w := range words {
		if escapeControls(w) != w {
			return "", nil
		}
		words[i] = strings.ReplaceAll(quoteSh(w), "%", "%%") // ssh expands % before the shell sees it
	}
	return strings.Join(words, " ") + " %h %p", nil
}

// ownProgram is the name under which a shell finds this program: the bare one, where that is this very file.
func ownProgram() string {
	const name = "dshproxy"
	self, err := os.Executable()
	if err != nil {
		return name
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return self
	}
	a, errA := os.Stat(self)
	b, errB := os.Stat(found)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return name
	}
	return self
}
