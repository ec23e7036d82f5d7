package rules

import (
	"os"
	"path/filepath"
	"testing"
)

func TestVectors(t *testing.T) {
	for _, name := range []string{"targets", "connections", "rules", "surface", "toolspec"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("../testdata/vectors", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			r, err := RunVectors(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Failures {
				t.Errorf("%s: want %s, got %s", f.ID, f.Want, f.Got)
			}
			if r.Passed == 0 {
				t.Error("no vector ran")
			}
			t.Logf("%d passed, %d failed, %d skipped", r.Passed, r.Failed, r.Skipped)
		})
	}
}
