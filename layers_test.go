// Package dshproxy_test holds the repository to what its documents promise.
package dshproxy_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "dshproxy/"

type goPackage struct {
	ImportPath   string
	Imports      []string
	Deps         []string
	GoFiles      []string
	EmbedFiles   []string
	Dir          string
	TestGoFiles  []string
	XTestGoFiles []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// TestLayers: imports point one way, and pure packages stay pure. Do not loosen testdata/layers.txt to make a build
// pass: the edge that it forbids is the design.
func TestLayers(t *testing.T) {
	text, err := os.ReadFile("testdata/layers.txt")
	if err != nil {
		t.Fatal(err)
	}
	allowed, pure := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, imports, _ := strings.Cut(line, ":")
		name, mark, _ := strings.Cut(name, " ")
		allowed[name], pure[name] = strings.Fields(imports), mark == "pure"
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "dshproxy" {
			continue
		}
		may, listed := allowed[name]
		if !listed {
			t.Errorf("%s is not in testdata/layers.txt", name)
		}
		for _, imp := range p.Imports {
			if inner, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(may, inner) && !slices.Contains(may, "*") {
				t.Errorf("%s imports %s, which layers.txt does not allow", name, inner)
			}
		}
		if pure[name] {
			for _, banned := range []string{"net", "net/http", "os/exec", "log/slog"} {
				if slices.Contains(p.Deps, banned) {
					t.Errorf("pure package %s reaches %s", name, banned)
				}
			}
			for _, banned := range []string{"os", "time", "io/fs"} {
				if slices.Contains(p.Imports, banned) {
					t.Errorf("pure package %s imports %s", name, banned)
				}
			}
		}
	}
}

// TestOneWayOfThings: pinning belongs to the gate, miekg/dns to resolve, and there is no init and no unpinned dial.
func TestOneWayOfThings(t *testing.T) {
	may := map[string][]string{
		"resolve.Pin":             {"proxy/gate.go"},
		"net.Dial":                {},
		"net.DialTimeout":         {},
		"http.DefaultClient":      {},
		"http.Get":                {},
		"prometheus.MustRegister": {},
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, imp := range file.Imports {
			if strings.Contains(imp.Path.Value, "miekg/dns") && !strings.HasPrefix(path, "resolve/") {
				t.Errorf("%s imports miekg/dns, which belongs to resolve", path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s has an init", path)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					name := x.Name + "." + n.Sel.Name
					if files, limited := may[name]; limited && !slices.Contains(files, path) {
						t.Errorf("%s uses %s", path, name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAttacksAreTested: every hostile input of testdata/attacks.txt is named by a test.
func TestAttacksAreTested(t *testing.T) {
	list, err := os.ReadFile("testdata/attacks.txt")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".txtar") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		id := strings.TrimSpace(line)
		if id != "" && id[0] != '#' && !strings.Contains(tests.String(), id) {
			t.Errorf("%s is tested nowhere", id)
		}
	}
}
