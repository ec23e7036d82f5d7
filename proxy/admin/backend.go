package admin

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"dshproxy/netrule"
	"dshproxy/proxy/decisionlog"
)

// Backend is the running proxy as the API sees it. Its methods are called from many goroutines. An error that is an
// *Error is answered as it says; any other one is logged and answered with 500, without its text.
type Backend interface {
	Status() Status
	// Records has the newest decisions and the events; nil means that none are kept.
	Records() *decisionlog.Ring
	// Tunnels gives the open tunnels, upgrades and forwarded streams.
	Tunnels() []Tunnel
	// Rules gives the effective chain.
	Rules() Rules
	// Check judges a tool call.
	Check(context.Context, Call) (Verdict, error)
	// ExplainCall judges a tool call and says what every rule had to do with it.
	ExplainCall(context.Context, Call) (CallExplanation, error)
	// Explain judges a connection and says what every rule had to do with it.
	Explain(context.Context, TargetQuery) (Explanation, error)
	// Reload reads rules and settings now. A failed reload keeps what was in force and is an *Error of status 409.
	Reload(context.Context) (Reloaded, error)
	// Allow inserts one exact rule for a target, whose port is 0 where no port was given; private also opens its
	// special-use addresses. Where the action is switched off, the error is an *Error of status 403.
	Allow(ctx context.Context, t netrule.Target, private bool) (Allowed, error)
	// Stop makes the proxy refuse every connection, until Resume. Each may be called again and then changes nothing.
	Stop(context.Context) error
	Resume(context.Context) error
}

// Status is what the proxy does right now.
type Status struct {
	Version    string     `json:"version"`
	Started    time.Time  `json:"started"`
	Listeners  []Listener `json:"listeners"`
	Mode       string     `json:"mode"`
	Unlisted   string     `json:"unlisted"` // verdict of whitelist mode
	Enforce    bool       `json:"enforce"`
	Rules      int        `json:"rules"`   // of the workspace and managed
	Builtin    int        `json:"builtin"` // rules
	Policy     string     `json:"policy"`  // hash
	Pending    bool       `json:"pending"` // a change of the rules waits to be accepted
	LastReload LastReload `json:"last_reload"`
	Active     int        `json:"active"` // client connections
	Tunnels    int        `json:"tunnels"`
	Draining   bool       `json:"draining"`
	Stopped    bool       `json:"stopped"`
	Upstream   string     `json:"upstream,omitempty"` // parent proxy, without credentials
}

// Listener is an open listener; its address is host:port or unix:PATH.
type Listener struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// LastReload is the last attempt to load rules or settings.
type LastReload struct {
	Time  time.Time `json:"time"`
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
}

// Tunnel is an open tunnel, upgrade or forwarded stream. Its id is that of its decision.
type Tunnel struct {
	ID        string    `json:"id"`
	Listener  string    `json:"listener"`
	Client    string    `json:"client"`
	Identity  string    `json:"identity,omitempty"`
	Host      string    `json:"host"`
	Port      uint16    `json:"port"`
	Dialed    string    `json:"dialed,omitempty"` // address and port
	SNI       string    `json:"sni,omitempty"`
	Seen      string    `json:"seen,omitempty"` // protocol that the first bytes showed
	Started   time.Time `json:"started"`
	Idle      float64   `json:"idle_ms"`   // milliseconds without a byte
	BytesIn   int64     `json:"bytes_in"`  // from the client
	BytesOut  int64     `json:"bytes_out"` // to the client
	Upstream  string    `json:"upstream,omitempty"`
	Workspace string    `json:"workspace,omitempty"`
}

// Rules is the effective chain.
type Rules struct {
	Rules    []Rule   `json:"rules"`
	Warnings []string `json:"warnings,omitempty"`
}

// Rule is one rule of the chain. Its index counts from 0 within its layer.
type Rule struct {
	Layer   string `json:"layer"` // managed, workspace or builtin
	Index   int    `json:"index"`
	File    string `json:"file"` // absolute
	Line    int    `json:"line"`
	Action  string `json:"action"`
	Enabled bool   `json:"enabled"`
	Summary string `json:"summary"` // what it is about
	Reason  string `json:"reason"`
}

// Ref is the rule that decided.
type Ref struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Index  int    `json:"index"`
	Reason string `json:"reason"`
}

// Call is a tool call to be judged. Its tool is not empty, its args are a JSON object or absent, its cwd is absolute or
// empty.
type Call struct {
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args,omitempty"`
	Cwd      string          `json:"cwd,omitempty"`
	Agents   []string        `json:"agent,omitempty"`
	Platform string          `json:"platform,omitempty"` // empty for the proxy's own
	// Env are the variables that rules look at; nil means the proxy's environment.
	Env map[string]string `json:"env,omitempty"`
}

// Verdict is the answer for a tool call. Its action is allow, deny, ask or passthrough.
type Verdict struct {
	Action   string `json:"action"`
	Code     string `json:"code"`
	Rule     *Ref   `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Would    string `json:"would,omitempty"` // what a dry run would have done
	Unparsed bool   `json:"unparsed,omitempty"`
}

// CallExplanation is a verdict with a line for every rule.
type CallExplanation struct {
	Verdict
	Trace []Trace `json:"trace"`
}

// Trace says what one rule had to do with a verdict.
type Trace struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Index   int    `json:"index"`
	Layer   string `json:"layer,omitempty"`
	Action  string `json:"action"`
	Outcome string `json:"outcome"`
	Failed  string `json:"failed,omitempty"` // dimension
	Note    string `json:"note,omitempty"`
}

// TargetQuery asks for the verdict of a connection.
type TargetQuery struct {
	// Target is valid. Its scheme and port are unknown where the text named none.
	Target netrule.Target
	Agents []string
	// Addrs is what a lookup of the name would have given; nil when nobody said.
	Addrs []netip.Addr
	// Lookup asks for a real one, where the rules do not refuse the name already.
	Lookup bool
}

// Explanation is the verdict of a connection with a line for every rule.
type Explanation struct {
	Target     string    `json:"target"`
	Action     string    `json:"action"`
	Code       string    `json:"code"`
	Mode       string    `json:"mode"`
	Matched    bool      `json:"matched"` // a rule decided, not the mode
	Rule       *Ref      `json:"rule,omitempty"`
	NeedsAddrs bool      `json:"needs_addresses,omitempty"`
	Addresses  []Address `json:"addresses,omitempty"`
	AllowHint  string    `json:"allow_hint,omitempty"`
	Trace      []Trace   `json:"trace"`
}

// Address is an address of an answer and what became of it.
type Address struct {
	Addr  string `json:"addr"`
	Class string `json:"class"`
	Kept  bool   `json:"kept"`
	Why   string `json:"why,omitempty"`
}

// Reloaded is what a reload brought.
type Reloaded struct {
	Changed  bool     `json:"changed"`
	Rules    int      `json:"rules"`
	Policy   string   `json:"policy"` // hash
	Warnings []string `json:"warnings,omitempty"`
}

// Allowed is what an edit did. Where nothing was written, its action says why: allow, it was allowed already; otherwise
// the rule would not have helped, and Rule or Hint say what holds against it.
type Allowed struct {
	Written   bool   `json:"written"`
	File      string `json:"file,omitempty"` // absolute
	Diff      string `json:"diff,omitempty"`
	Overrides []Ref  `json:"overrides,omitempty"` // the deny and ask rules that decided before
	// The verdict as it is now.
	Target string `json:"target"`
	Action string `json:"action"`
	Code   string `json:"code"`
	Rule   *Ref   `json:"rule,omitempty"`
	Hint   string `json:"hint,omitempty"`
}
