//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is the program, serving with settings of its own.
type process struct {
	*proxyOutput
	cmd       *exec.Cmd
	addresses map[string]string // by listener; proxy is the first, metrics is that of the metrics
	rules     string            // file
	decisions string            // file
	once      sync.Once
}

// startProcess starts the program with these rules and settings, to which it adds where the metrics are, the decision log
// and no admin API. It ends with the test.
func startProcess(t *testing.T, program, rules, settings string, env ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{rules: filepath.Join(dir, ".dsh/rules.yaml"), decisions: filepath.Join(dir, "decisions")}
	write(t, dir, ".dsh/rules.yaml", rules)
	config := filepath.Join(dir, "proxy.yaml")
	placeFile(t, config, settings+"metrics: {listen: '127.0.0.1:0'}\nadmin: {listen: off}\nlog: {decisions: "+p.decisions+"}\n")
	p.cmd = exec.Command(program, "serve", "--config", config, "--workspace", dir)
	p.cmd.Env = append([]string{"HOME=" + dir, "GORACE=atexit_sleep_ms=0"}, env...)
	stderr, err := p.cmd.StderrPipe()
	check(t, err)
	check(t, p.cmd.Start())
	p.proxyOutput = newProxyOutput(stderr)
	t.Cleanup(func() { p.end(t) })
	p.addresses = p.ready(t)
	return p
}

// end stops the process, once. What it printed can be read from then on.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.once.Do(func() { p.stop(t, p.cmd) })
}

// reload has the process read its rules again.
func (p *process) reload(t *testing.T) {
	t.Helper()
	check(t, p.cmd.Process.Signal(syscall.SIGHUP))
}

// series are the values of metrics, by name and labels.
type series map[string]float64

// scrape reads the metrics.
func (p *process) scrape(t *testing.T) series {
	t.Helper()
	resp, err := http.Get("http://" + p.addresses["metrics"] + "/metrics")
	check(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(t, err)
	out := series{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			out[line[:i]], err = strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
			check(t, err)
		}
	}
	if len(out) == 0 {
		t.Fatal("no metrics")
	}
	return out
}

// since gives what has changed in the series of these names.
func (s series) since(before series, names ...string) series {
	out := series{}
	for key, value := range s {
		name, _, _ := strings.Cut(key, "{")
		for _, n := range names {
			if name == n && value != before[key] {
				out[key] = value - before[key]
			}
		}
	}
	return out
}

// logRecord is a line of a decision log.
type logRecord struct {
	Msg, ID, Listener, Client, Identity, Host, Verdict, Code, Outcome, Upstream, Resolution, Stage, Cause, Why string

	Port     int
	DryRun   bool `json:"dry_run"`
	Would    string
	OK       bool
	Repeated int
	Request  *struct {
		Method, Path string
		Status       int
	}
}

// records reads the decision log as far as it is written.
func (p *process) records(t *testing.T) []logRecord {
	t.Helper()
	text, err := os.ReadFile(p.decisions)
	check(t, err)
	var out []logRecord
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var r logRecord
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("decision log: %v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// about gives the decisions about a host, and how often the first of them was closed.
func about(records []logRecord, host string) (decisions []logRecord, closes int) {
	for _, r := range records {
		switch {
		case r.Msg == "decision" && r.Host == host:
			decisions = append(decisions, r)
		case r.Msg == "close" && len(decisions) > 0 && r.ID == decisions[0].ID:
			closes++
		}
	}
	return decisions, closes
}

// eventually waits for what another process is about to do. It reports whether it did within the time.
func eventually(t *testing.T, within time.Duration, done func() bool) bool {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(within); !done(); {
		if time.Now().After(deadline) {
			return false
		}
		<-ticker.C
	}
	return true
}
