package rules

import (
	"strings"
)

const (
	hostCommands = " curl wget http https xh nc ncat netcat telnet ping ping6 dig drill nslookup host socat aria2c lynx w3m links elinks ftp tftp lftp traceroute tracepath mtr axel ssh-keyscan "
	sshCommands  = " ssh scp sftp rsync git mosh sshfs ssh-copy-id autossh slogin "
)

// hostOptions are the options of other commands that name a host.
var hostOptions = map[string]string{
	"openssl": " -connect -host -proxy ", "kubectl": " --server -s ", "oc": " --server -s ", "helm": " --kube-apiserver ", "docker": " -H --host ", "podman": " --url --connection ",
	"mysql": " -h --host ", "mysqldump": " -h --host ", "mariadb": " -h --host ", "psql": " -h --host ", "pg_dump": " -h --host ", "redis-cli": " -h ", "mongo": " --host ", "mongosh": " --host ", "pip": " --trusted-host ", "pip3": " --trusted-host ",
}

// fileOptions make a command read targets, or all its options, from elsewhere.
var fileOptions = map[string]string{"curl": " -K --config ", "wget": " -i --input-file --config ", "aria2c": " -i --input-file --conf-path ", "lftp": " -f ", "ssh": " -F ", "scp": " -F ", "sftp": " -F -b "}

// shortValues are the letters of options that take a word of their own.
var shortValues = map[string]string{
	"curl": "AbcCdDeEFHKmoPQrtTuUwxXyYz", "wget": "aAeiIlDoOPQRtTUwBX", "ssh": "BbcDEeFIiJLlmMOoPpQRSWw", "scp": "cDFiJloPSX", "sftp": "BbcDFiJloPRSsX", "nc": "iIMmOoPpqsTVwXx", "ncat": "deEgGimopPsw", "ping": "cFiIlmMpQsStTwW",
	"http": "abAopsv", "https": "abAopsv", "xh": "aAbops", "telnet": "bleknSX",
}

// plainOptions are long options that take no word.
const plainOptions = " --silent --show-error --location --fail --fail-with-body --insecure --compressed --verbose --include --head --globoff --get --next --remote-name --remote-name-all --remote-header-name --progress-bar " +
	"--no-progress-meter --http1.0 --http1.1 --http2 --http3 --ipv4 --ipv6 --tlsv1 --tlsv1.0 --tlsv1.1 --tlsv1.2 --tlsv1.3 --sslv2 --sslv3 --ssl --ssl-reqd --ssl-no-revoke --anyauth --basic --digest --ntlm --negotiate --netrc " +
	"--netrc-optional --no-buffer --no-keepalive --no-sessionid --no-alpn --no-npn --append --use-ascii --crlf --create-dirs --disable --disable-eprt --disable-epsv --fail-early --false-start --ftp-create-dirs --ftp-pasv --ftp-pret " +
	"--ftp-skip-pasv-ip --ftp-ssl --haproxy-protocol --ignore-content-length --junk-session-cookies --list-only --location-trusted --manual --metalink --parallel --parallel-immediate --path-as-is --post301 --post302 --post303 " +
	"--proxy-anyauth --proxy-basic --proxy-digest --proxy-insecure --proxy-negotiate --proxy-ntlm --proxytunnel --raw --remote-time --retry-all-errors --retry-connrefused --sasl-ir --socks5-basic --socks5-gssapi --styled-output " +
	"--suppress-connect-headers --tcp-fastopen --tcp-nodelay --tftp-no-options --tr-encoding --trace-time --xattr --quiet --no-verbose --continue --timestamping --no-clobber --spider --recursive --page-requisites --mirror " +
	"--no-check-certificate --no-proxy --content-disposition --debug --force-directories --no-directories --no-parent --span-hosts --relative --inet4-only --inet6-only --json --form --follow --ignore-stdin --verify --check-status --stream --download --body --headers "

// dataOptions take a word that is no target.
const dataOptions = " -H --header -d --data --data-raw --data-binary --data-urlencode --data-ascii --json -o --output -u --user -A --user-agent -b --cookie -c --cookie-jar -F --form --form-string -X --request -m --max-time --connect-timeout " +
	"-T --upload-file -w --write-out -O --output-document -P --directory-prefix --post-data --post-file --body-data --retry --cacert --cert --key -E -e --referer -r --range --proto -m -i -p -l --output-dir "

// targetOptions take a host or URL that a command goes to, or through.
const targetOptions = " -x --proxy --preproxy --socks4 --socks4a --socks5 --socks5-hostname --proxy1.0 --url --doh-url --dns-servers --base "

// detourOptions make a command go somewhere else than its operands say.
const detourOptions = " --connect-to --resolve --unix-socket --abstract-unix-socket "

// commandTargets adds the hosts that a network command is given, and notes when the words do not show them.
func (f *facts) commandTargets(c *simpleCommand, more, loose *targetList) {
	for _, r := range c.redirects {
		if strings.Contains(r, "/dev/tcp/") || strings.Contains(r, "/dev/udp/") {
			f.wordTargets(r, more, loose)
		}
	}
	switch {
	case isOneOf(c.word, hostCommands):
		f.hostTargets(c, more, loose)
	case c.word == "git":
		f.gitTargets(c, more, loose)
	case isOneOf(c.word, sshCommands):
		f.sshTargets(c, more, loose)
	case hostOptions[c.word] != "":
		f.optionTargets(c, more)
	case c.word == "getent" && len(c.args) > 1 && strings.Contains(c.args[0], "hosts"):
		for _, a := range c.args[1:] {
			f.addTarget(more, a)
		}
	case isOneOf(c.word, " xargs parallel "):
		if name := lastName(append([]string{c.word}, c.args...), f.work); isOneOf(name, hostCommands+sshCommands) {
			f.unknown = f.unknown || len(c.stdin) == 0
		}
	}
}

const maxOperands = 200 // arguments; a longer command names files

// operands visits the arguments of a command. value says that the word belongs to the option before it, sure that it
// certainly does, or does not.
func (f *facts) operands(c *simpleCommand, visit func(i int, a string, value, sure bool)) {
	if len(c.args) > maxOperands {
		f.unknown = true
	}
	for i, a := range c.args[:min(len(c.args), maxOperands)] {
		if !f.work.Spend(2 * hostCost(a[:min(len(a), 4096)])) {
			return
		}
		value, sure := false, true
		if i > 0 && len(c.args[i-1]) > 1 && c.args[i-1][0] == '-' && c.args[i-1] != "--" {
			value, sure = takesWord(c.word, c.args[i-1])
		}
		visit(i, a, value, sure)
	}
}

// takesWord reports whether an option takes the next word, and whether that is known.
func takesWord(command, option string) (takes, sure bool) {
	if strings.HasPrefix(option, "--") {
		switch {
		case strings.Contains(option, "="), isOneOf(option, plainOptions):
			return false, true
		case isOneOf(option, dataOptions):
			return true, true
		}
		return true, false
	}
	letters, ok := shortValues[command]
	if !ok {
		return true, false
	}
	i := strings.IndexAny(option[1:], letters)
	return i >= 0 && i+2 == len(option), true
}

// hostTargets are those of curl and its like: every operand is one.
func (f *facts) hostTargets(c *simpleCommand, more, loose *targetList) {
	method := true
	f.operands(c, func(i int, a string, value, sure bool) {
		d := f.views.unsure[a]
		prev := ""
		if i > 0 {
			prev = c.args[i-1]
		}
		switch {
		case isOneOf(a, fileOptions[c.word]), len(a) > 2 && a[0] == '-' && a[1] != '-' && isOneOf(a[:2], fileOptions[c.word]), strings.HasPrefix(a, "--config="), strings.HasPrefix(a, "--input-file="):
			f.unknown = true
		case d == doubtOpen, d == doubtQuoted && !f.harmless(a, prev):
			f.unknown = true
		}
		if strings.HasPrefix(a, "-K") || strings.HasPrefix(a, "--config") {
			f.curlConfig(c, more)
		}
		f.looseTargets(c, i, a, more, loose)
		if option, _, _ := strings.Cut(a, "="); isOneOf(option, detourOptions) {
			f.unknown = true
		}
		for _, host := range proxies(c.word, prev, a) {
			f.addReadings(readAuthority(host, schemeEnd(host), f.work), more)
		}
		if a == "" || a[0] == '-' || value {
			return
		}
		if isOneOf(c.word, " http https xh ") {
			if method && strings.Trim(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
				return
			}
			if !method {
				return // items of the request
			}
			if method = false; a[0] == ':' {
				a = "localhost" + a
			}
		}
		if c.word == "socat" || schemeEnd(a) > 0 && strings.Contains(a, "://") {
			return // looked at as a word
		}
		if !isOneOf(c.word, " curl wget http https xh aria2c lynx w3m axel ") && strings.Trim(a, "0123456789") == "" {
			return // a port
		}
		if sure {
			f.addReadings(readAuthority(strings.TrimPrefix(a, "@"), 0, f.work), more)
		}
	})
}

// proxies gives what an argument names as the value of an option that is a target.
func proxies(command, prev, a string) []string {
	if option, value, ok := strings.Cut(a, "="); ok && isOneOf(option, targetOptions) {
		return []string{value}
	}
	if isOneOf(prev, targetOptions) {
		return []string{a}
	}
	if command != "curl" {
		return nil
	}
	if i := strings.IndexAny(prev, shortValues[command]); i > 0 && prev[0] == '-' && prev[1] != '-' && prev[i:] == "x" {
		return []string{a} // -sx HOST
	}
	if i := strings.IndexAny(a, shortValues[command]); i > 0 && a[0] == '-' && a[1] != '-' && a[i] == 'x' && i+1 < len(a) {
		return []string{a[i+1:]}
	}
	return nil
}

// curlConfig adds the targets of a configuration that curl is given to read.
func (f *facts) curlConfig(c *simpleCommand, more *targetList) {
	for _, text := range c.stdin {
		for line := range strings.Lines(text) {
			name, value, ok := strings.Cut(line, "=")
			if !ok {
				name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
			}
			if value = strings.Trim(strings.TrimSpace(value), `"`); isOneOf(strings.TrimLeft(strings.TrimSpace(name), "-"), " url proxy preproxy socks5 x connect-to ") && f.work.Spend(hostCost(value)) {
				f.addReadings(readAuthority(value, schemeEnd(value), f.work), more)
			}
		}
	}
}

// harmless reports a word with a quoted expansion that cannot change where a command goes.
func (f *facts) harmless(word, prev string) bool {
	if isOneOf(prev, dataOptions) {
		return true
	}
	at := strings.IndexAny(word, "$`")
	if at < 0 {
		return true
	}
	head := word[:at]
	if option, _, ok := strings.Cut(head, "="); ok && isOneOf(option, dataOptions) {
		return true
	}
	if len(head) >= 2 && head[0] == '-' && head[1] != '-' && isOneOf(head[:2], dataOptions) {
		return true
	}
	end := schemeEnd(head)
	return end > 0 && strings.HasPrefix(head[end:], "//") && strings.IndexAny(head[end+2:], "/?#") > 0
}

// looseTargets are the parts of a word that may be a host.
func (f *facts) looseTargets(c *simpleCommand, i int, a string, more, loose *targetList) {
	for _, piece := range pieces(a) {
		isPort := isOneOf(c.word, " nc ncat netcat telnet ") && strings.Trim(piece, "0123456789") == ""
		if isPort || !looksLikeHost(piece) {
			f.addTarget(loose, piece)
			continue
		}
		// nc HOST PORT and telnet HOST PORT have the port as the next word.
		if isOneOf(c.word, " nc ncat telnet ") && i+1 < len(c.args) && strings.Trim(c.args[i+1], "0123456789") == "" && !strings.Contains(piece, ":") {
			piece += ":" + c.args[i+1]
		}
		if isOneOf(c.word, " scp rsync sshfs ") {
			f.addTarget(loose, piece) // a file as likely
			continue
		}
		f.addTarget(more, piece)
	}
}

// sshTargets are the hosts of ssh, scp and rsync.
func (f *facts) sshTargets(c *simpleCommand, more, loose *targetList) {
	first := true
	f.operands(c, func(i int, a string, value, sure bool) {
		if f.views.unsure[a] != 0 && (first || c.word != "ssh") || isOneOf(a, fileOptions[c.word]) {
			f.unknown = true
		}
		if isOneOf(a, " -e --rsh ") || strings.HasPrefix(a, "--rsh=") {
			f.unknown = f.unknown || c.word == "rsync"
		}
		for _, jump := range jumpHosts(c.args, i) {
			f.addTarget(more, withoutScheme(jump[strings.LastIndexByte(jump, '@')+1:]))
		}
		if host, ok := remoteHost(a); ok {
			f.addTarget(more, host)
		}
		if user, host, ok := strings.Cut(a, "@"); ok && !strings.ContainsAny(user, "/ -") {
			f.addTarget(more, host)
		}
		if head, _, ok := strings.Cut(a, ":"); ok && !strings.Contains(head, "/") {
			if isOneOf(c.word, " scp rsync sftp sshfs ") && !value {
				f.addTarget(more, head)
			} else {
				f.addTarget(loose, head)
			}
		}
		f.looseTargets(c, i, a, more, loose)
		if a == "" || a[0] == '-' || value {
			return
		}
		if first && isOneOf(c.word, " ssh mosh sftp autossh slogin ssh-copy-id ") && sure {
			f.addTarget(more, withoutScheme(a[strings.LastIndexByte(a, '@')+1:]))
		}
		first = false
	})
}

// jumpHosts are the hosts that an option of ssh goes through.
func jumpHosts(args []string, i int) []string {
	a := args[i]
	lower := lowerASCII(strings.TrimPrefix(a, "-o"))
	switch {
	case i > 0 && args[i-1] == "-J":
	case strings.HasPrefix(a, "-J") && len(a) > 2:
		a = a[2:]
	case strings.HasPrefix(lower, "proxyjump"), strings.HasPrefix(lower, "hostname"):
		if i := strings.IndexAny(a, "= "); i >= 0 {
			a = a[i+1:]
		}
	default:
		return nil
	}
	return strings.Split(a, ",")
}

// gitTargets are the remotes of git; its other operands are branches and files.
func (f *facts) gitTargets(c *simpleCommand, more, loose *targetList) {
	remote, named, first := false, false, false
	f.operands(c, func(_ int, a string, value, _ bool) {
		operand := a != "" && a[0] != '-'
		if isOneOf(a, " clone fetch pull push ls-remote submodule ") && !remote {
			remote, first, operand = true, true, false
		}
		if _, option, ok := strings.Cut(a, "="); ok && strings.HasPrefix(a, "--") {
			a = option
		}
		lower := lowerASCII(a)
		if strings.Contains(a, "::") || strings.Contains(lower, "proxy=") || strings.Contains(lower, "insteadof=") {
			f.unknown = true
		}
		host, ok := remoteHost(a)
		if ok {
			f.addTarget(more, host)
		}
		if head, _, ok := strings.Cut(a, ":"); ok && !strings.Contains(head, "/") {
			f.addTarget(loose, head)
		}
		if operand && first {
			named = ok || schemeEnd(a) > 0 && strings.Contains(a, "://")
			first = value // it may belong to the option
		}
		f.unknown = f.unknown || remote && f.views.unsure[a] != 0
	})
	f.unknown = f.unknown || remote && !named
}

// optionTargets are the values of options that name a host.
func (f *facts) optionTargets(c *simpleCommand, more *targetList) {
	options := hostOptions[c.word]
	f.operands(c, func(i int, a string, _, _ bool) {
		option, value, glued := strings.Cut(a, "=")
		switch {
		case glued && isOneOf(option, options):
			f.addTarget(more, withoutScheme(value))
		case i > 0 && isOneOf(c.args[i-1], options):
			f.addTarget(more, withoutScheme(a))
		case len(a) > 2 && a[0] == '-' && a[1] != '-' && isOneOf(a[:2], options) && c.word != "openssl":
			f.addTarget(more, withoutScheme(a[2:]))
		case c.word == "openssl" && i > 0 && c.args[0] == "s_client" && a[0] != '-' && strings.Contains(a, ":"):
			f.addTarget(more, a)
		}
	})
}
