package netrule

import "net/netip"

// The data of this file is network.md §4: blocks are taken whole, whatever IANA says of their parts.

// block is a special-use prefix and its class.
type block struct {
	prefix netip.Prefix
	class  Class
}

func blocks(class Class, prefixes ...string) []block {
	out := make([]block, len(prefixes))
	for i, p := range prefixes {
		out[i] = block{netip.MustParsePrefix(p), class}
	}
	return out
}

// specialBlocks lists special-use space, a longer prefix before one that holds it.
var specialBlocks = func() []block {
	var all []block
	for _, list := range [][]block{
		// IPv4
		blocks(ClassUnspecified, "0.0.0.0/32"),
		blocks(ClassLoopback, "127.0.0.0/8"),
		blocks(ClassPrivate, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
		blocks(ClassLinkLocal, "169.254.0.0/16"),
		blocks(ClassCGNAT, "100.64.0.0/10"),
		blocks(ClassMulticast, "224.0.0.0/4"),
		blocks(ClassReserved, "0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
			"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
		// IPv6
		blocks(ClassUnspecified, "::/128"),
		blocks(ClassLoopback, "::1/128"),
		blocks(ClassPrivate, "fc00::/7", "fec0::/10"),
		blocks(ClassLinkLocal, "fe80::/10"),
		blocks(ClassMulticast, "ff00::/8"),
		blocks(ClassReserved, "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32",
			"2002::/16", "3fff::/20", "5f00::/16"),
	} {
		all = append(all, list...)
	}
	return all
}()

// globalIPv6 is the only IPv6 space that can be public; nat64WellKnown is a transparent carrier outside of it.
var (
	globalIPv6     = netip.MustParsePrefix("2000::/3")
	nat64WellKnown = netip.MustParsePrefix("64:ff9b::/96")
)

// metadataAddrs are the addresses at which clouds serve credentials to whoever can connect.
var metadataAddrs = func() map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, s := range []string{
		"169.254.169.254",               // AWS, Azure, GCP, OpenStack and most others
		"169.254.169.252",               // AWS, VPC endpoint of the same
		"169.254.170.2",                 // AWS ECS task credentials
		"169.254.170.23",                // AWS EKS pod identity
		"169.254.42.42",                 // Scaleway
		"169.254.0.23",                  // Tencent
		"100.100.100.200",               // Alibaba
		"168.63.129.16",                 // Azure WireServer
		"192.0.0.192",                   // Oracle, classic
		"fd00:ec2::254", "fd00:ec2::23", // AWS
		"fd20:ce::254",       // GCP
		"fd00:c1::a9fe:a9fe", // Oracle
		"fd00:42::42",        // Scaleway
		"fd00:a9fe:a9fe::1",  // Akamai
		"fe80::a9fe:a9fe",    // OpenStack
	} {
		set[netip.MustParseAddr(s)] = true
	}
	return set
}()

// metadataNames are the names of the same services.
var metadataNames = map[string]bool{
	"metadata.google.internal":     true,
	"metadata.goog":                true,
	"instance-data":                true,
	"instance-data.ec2.internal":   true,
	"metadata.platformequinix.com": true,
	"metadata.tencentyun.com":      true,
	"api.metadata.cloud.ibm.com":   true,
	"rancher-metadata":             true,
}

// exactPorts carry mail and DNS: only a rule that names exactly the port admits one.
func needsExactPort(port uint16) bool {
	switch port {
	case 25, 465, 587, 53, 853:
		return true
	default:
		return false
	}
}
