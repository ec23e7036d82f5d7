package resolve

import (
	"bufio"
	"bytes"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	rereadAfter = 5 * time.Second
	maxConfig   = 8 << 20 // bytes of a hosts file or resolv.conf that are read
)

// reread tells when a file may have changed: at most every 5 s it is read again.
type reread struct {
	mu   sync.Mutex
	next time.Time
	raw  []byte
}

// due reports whether the content has changed since the last call, and gives it. The caller holds mu.
func (r *reread) due(path string) ([]byte, bool) {
	now := time.Now()
	if now.Before(r.next) {
		return nil, false
	}
	first := r.next.IsZero()
	r.next = now.Add(rereadAfter)
	raw, err := readBounded(path)
	if err != nil {
		raw = nil
	}
	if !first && bytes.Equal(raw, r.raw) {
		return nil, false
	}
	r.raw = raw
	return raw, true
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConfig))
}

// systemConfig is resolv.conf.
type systemConfig struct {
	reread
	path string
	list []Server
}

// servers gives the name servers; without any it is the one on this machine, as resolv.conf(5) has it.
func (s *systemConfig) servers() []Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if raw, changed := s.due(s.path); changed {
		s.list = parseResolvConf(raw)
	}
	return s.list
}

func parseResolvConf(raw []byte) []Server {
	var out []Server
	for scan := bufio.NewScanner(bytes.NewReader(raw)); scan.Scan(); {
		f := strings.Fields(scan.Text())
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(f[1]); err == nil {
			out = append(out, Server{Addr: netip.AddrPortFrom(addr, 53), Net: "udp"})
		}
	}
	if len(out) == 0 {
		out = []Server{{Addr: netip.MustParseAddrPort("127.0.0.1:53"), Net: "udp"}}
	}
	return out
}

// hostsFile is /etc/hosts.
type hostsFile struct {
	reread
	path  string
	names map[string][]netip.Addr
}

func (h *hostsFile) lookup(name string) []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if raw, changed := h.due(h.path); changed {
		h.names = parseHosts(raw)
	}
	return h.names[name]
}

func parseHosts(raw []byte) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for scan := bufio.NewScanner(bytes.NewReader(raw)); scan.Scan(); {
		line, _, _ := strings.Cut(scan.Text(), "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(f[0])
		if err != nil || addr.Zone() != "" {
			continue
		}
		for _, name := range f[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			if len(out[name]) < maxAddrs {
				out[name] = append(out[name], addr.Unmap())
			}
		}
	}
	return out
}
