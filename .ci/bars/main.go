// Bars holds the results of the load generator to the bars that dshproxy has set itself, and holds idle tunnels beside a
// run.
//
//	go run ./.ci/bars judge FILE...                 JSON lines of the load generator
//	go run ./.ci/bars hold COUNT PROXY TARGET...    until stdin ends; PROXY and TARGET are host:port
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
)

// result is one slot of the load generator.
type result struct {
	Type     string  `json:"type"`
	Scenario string  `json:"scenario"`
	Target   string  `json:"target"`
	CPU      float64 `json:"proxy_cpu_us_per_op"`
	Rel      float64 `json:"proxy_cpu_rel"`
	P50      float64 `json:"p50_us"`
	RSS      float64 `json:"rss_kib_per_tunnel"`
	FDs      float64 `json:"fds_per_tunnel"`
}

// bar is a limit: the figure of the target over that of the base, in the same run. Without a base the figure itself is
// held to it.
type bar struct {
	target, scenario string
	figure           string // rel, cpu, p50, rss, fds
	base             string // target[/scenario]; empty for none
	limit            float64
}

var figures = map[string]func(result) float64{
	"rel": func(r result) float64 { return r.Rel },
	"cpu": func(r result) float64 { return r.CPU },
	"p50": func(r result) float64 { return r.P50 },
	"rss": func(r result) float64 { return r.RSS },
	"fds": func(r result) float64 { return r.FDs },
}

func bars() []bar {
	out := []bar{
		{"dshproxy", "connect_c32", "rel", "relay-lazy", 1.15},
		{"dshproxy", "connect_c256", "rel", "relay-lazy", 1.15},
		{"dshproxy", "connect_name_c32", "rel", "dshproxy/connect_c32", 1.1},
		{"dshproxy", "deny_c32", "rel", "relay", 1.3},
		{"dshproxy", "http_c64", "cpu", "relay", 2},
		{"dshproxy", "ping", "p50", "relay", 1.15},
	}
	for _, peer := range []string{"squid", "tinyproxy", "privoxy", "goproxy", "smokescreen"} {
		out = append(out, bar{"dshproxy", "http_c64", "cpu", peer, 0.5})
	}
	for _, user := range []string{"", "-nobody"} {
		for _, s := range []string{"down_1", "down_8", "up_1", "up_8"} {
			out = append(out, bar{"dshproxy" + user, s, "rel", "relay" + user, 1.15})
		}
	}
	for _, t := range []string{"dshproxy-idle", "dshproxy-idle64k"} {
		out = append(out, bar{t, "idle", "rss", "", 10}, bar{t, "idle", "fds", "", 2})
	}
	return out
}

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 1 && args[0] == "judge":
		err = judge(args[1:])
	case len(args) > 3 && args[0] == "hold":
		err = hold(args[1], args[2], args[3:])
	default:
		err = fmt.Errorf("usage: bars judge FILE... | hold COUNT PROXY TARGET...")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bars:", err)
		os.Exit(1)
	}
}

// judge prints each bar with the figures that there are. A bar without figures is shown as not measured; it is an error
// if one is missed.
func judge(files []string) error {
	all := map[string]map[string][]float64{} // target/scenario, figure
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		for dec := json.NewDecoder(f); ; {
			var r result
			if err := dec.Decode(&r); err == io.EOF {
				break
			} else if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			key := r.Target + "/" + r.Scenario
			if r.Type != "result" {
				continue
			}
			if all[key] == nil {
				all[key] = map[string][]float64{}
			}
			for figure, of := range figures {
				if v := of(r); v > 0 {
					all[key][figure] = append(all[key][figure], v)
				}
			}
		}
		f.Close()
	}
	missed := 0
	fmt.Println("| scenario | figure | dshproxy | of | its figure | ratio | bar | baseline's own difference | |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, b := range bars() {
		if !b.print(all) {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d missed", missed)
	}
	return nil
}

// print writes the row of a bar, and reports whether it holds, or could not be told.
func (b bar) print(all map[string]map[string][]float64) bool {
	value := median(all[b.target+"/"+b.scenario][b.figure])
	base, again := 1.0, math.NaN()
	if b.base != "" {
		key := b.base + "/" + b.scenario
		if _, own := all[b.base]; own {
			key = b.base // another scenario of the target itself
		}
		base = median(all[key][b.figure])
		again = median(all[b.base+"-again/"+b.scenario][b.figure])
	}
	ratio, difference := value/base, math.Abs(again/base-1)
	limit := b.limit
	if b.limit <= 1.15 && b.base != "" && !math.IsNaN(difference) {
		limit += difference
	}
	verdict := "held"
	switch {
	case math.IsNaN(ratio):
		verdict = "not measured"
	case ratio > limit:
		verdict = "MISSED"
	}
	fmt.Printf("| `%s`%s | %s | %s | %s | %s | %s | %.4g | %s | %s |\n", b.scenario, b.target[len("dshproxy"):], b.figure, text(value), b.base, text(base), text(ratio), b.limit, text(difference), verdict)
	return verdict != "MISSED"
}

func text(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// hold opens tunnels, through which nothing is sent, and keeps them until stdin ends.
func hold(count, proxy string, targets []string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for i := range n {
		c, err := new(net.Dialer).Dial("tcp", proxy)
		if err != nil {
			return err
		}
		defer c.Close()
		target := targets[i%len(targets)]
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
		r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			return err
		}
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("tunnel %d: %s", i, r.Status)
		}
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
