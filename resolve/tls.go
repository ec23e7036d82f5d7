package resolve

import "crypto/tls"

// tlsConfig verifies a DNS-over-TLS server (RFC 7858) by its address, or by the name it was given.
func tlsConfig(s Server) *tls.Config {
	name := s.Name
	if name == "" {
		name = s.Addr.Addr().String()
	}
	return &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
}
