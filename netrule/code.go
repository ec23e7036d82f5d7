package netrule

// Code is why a connection was allowed, refused or ended. The set is closed: metrics, log and wire share it. The zero
// value is CodeInternalError, so that an outcome nobody set shows itself.
type Code uint8

// The codes, in groups: internal error; allowed; refused by policy; refused inside a tunnel; ended later; refused before a
// verdict; failed; loop and missing policy.
const (
	CodeInternalError Code = iota

	CodeAllowedByRule
	CodeAllowedByMode
	CodeApproved
	CodeDryRun

	CodeNotAllowed
	CodeDeniedByRule
	CodeNeedsApproval
	CodeApprovalDenied
	CodeApprovalTimeout
	CodeApprovalRate
	CodeSpecialUseAddress
	CodeMetadataAddress
	CodeUpstreamTarget
	CodeInternalName

	CodeSNIMismatch
	CodeSNIMissing
	CodeTLSIncomplete
	CodeSchemeMismatch
	CodeHostMismatch

	CodeRevoked
	CodeIdle
	CodeLifetime
	CodeBytes

	CodeBadTarget
	CodeBadRequest
	CodeAuthorityMismatch
	CodeHeadTooLarge
	CodeHeadTimeout
	CodeAuthRequired
	CodeClientLimit
	CodeServerLimit
	CodeDraining
	CodeStopped

	CodeDNSError
	CodeDNSTimeout
	CodeConnectionRefused
	CodeDestinationIPUnroutable
	CodeConnectionTerminated
	CodeConnectionTimeout
	CodeBadResponse
	CodeResponseTimeout
	CodeUpstreamProxyError

	CodeLoop
	CodeNoPolicy

	numCodes
)

var codeNames = [numCodes]string{
	CodeInternalError:           "internal_error",
	CodeAllowedByRule:           "allowed_by_rule",
	CodeAllowedByMode:           "allowed_by_mode",
	CodeApproved:                "approved",
	CodeDryRun:                  "dry_run",
	CodeNotAllowed:              "not_allowed",
	CodeDeniedByRule:            "denied_by_rule",
	CodeNeedsApproval:           "needs_approval",
	CodeApprovalDenied:          "approval_denied",
	CodeApprovalTimeout:         "approval_timeout",
	CodeApprovalRate:            "approval_rate",
	CodeSpecialUseAddress:       "special_use_address",
	CodeMetadataAddress:         "metadata_address",
	CodeUpstreamTarget:          "upstream_target",
	CodeInternalName:            "internal_name",
	CodeSNIMismatch:             "sni_mismatch",
	CodeSNIMissing:              "sni_missing",
	CodeTLSIncomplete:           "tls_incomplete",
	CodeSchemeMismatch:          "scheme_mismatch",
	CodeHostMismatch:            "host_mismatch",
	CodeRevoked:                 "revoked",
	CodeIdle:                    "idle",
	CodeLifetime:                "lifetime",
	CodeBytes:                   "bytes",
	CodeBadTarget:               "bad_target",
	CodeBadRequest:              "bad_request",
	CodeAuthorityMismatch:       "authority_mismatch",
	CodeHeadTooLarge:            "head_too_large",
	CodeHeadTimeout:             "head_timeout",
	CodeAuthRequired:            "auth_required",
	CodeClientLimit:             "client_limit",
	CodeServerLimit:             "server_limit",
	CodeDraining:                "draining",
	CodeStopped:                 "stopped",
	CodeDNSError:                "dns_error",
	CodeDNSTimeout:              "dns_timeout",
	CodeConnectionRefused:       "connection_refused",
	CodeDestinationIPUnroutable: "destination_ip_unroutable",
	CodeConnectionTerminated:    "connection_terminated",
	CodeConnectionTimeout:       "connection_timeout",
	CodeBadResponse:             "bad_response",
	CodeResponseTimeout:         "response_timeout",
	CodeUpstreamProxyError:      "upstream_proxy_error",
	CodeLoop:                    "loop",
	CodeNoPolicy:                "no_policy",
}

// String returns the name that the wire, the log and the metrics use.
func (c Code) String() string {
	if c < numCodes {
		return codeNames[c]
	}
	return codeNames[CodeInternalError]
}

// MarshalText makes a code its name in JSON.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Codes lists the closed set.
func Codes() []Code {
	out := make([]Code, numCodes)
	for i := range out {
		out[i] = Code(i)
	}
	return out
}
