package rules

import "strings"

const pathKeys = " path paths file files file_path dir directory directories cwd workspace root target targets output "

// pathCandidates are the strings of the call that name paths, relative to the workspace.
func (f *facts) pathCandidates() []string {
	if f.pathsDone {
		return f.paths
	}
	f.pathsDone = true
	if f.args.kind != argObject {
		return nil
	}
	f.args.walkKeys(0, func(key string, v *arg) {
		if !isOneOf(key, pathKeys) {
			return
		}
		for _, s := range v.strings() {
			if !f.work.Spend(200 + 15*(len(s)+len(f.call.Cwd)+len(f.call.Workspace))) {
				return
			}
			root, fold := f.call.Workspace, f.foldsPaths()
			if cwd := f.call.Cwd; cwd != "" && isRelative(s) {
				f.paths = append(f.paths, workspacePaths(root, cwd+"/"+s, fold)...)
				f.otherPaths = append(f.otherPaths, workspacePaths(root, s, fold)...)
				continue
			}
			f.paths = append(f.paths, workspacePaths(root, s, fold)...)
		}
	})
	return f.paths
}

// isRelative reports a path that starts from the working folder.
func isRelative(p string) bool {
	p = strings.ReplaceAll(p, `\`, "/")
	return p != "" && p[0] != '/' && driveOf(p) == ""
}

// foldsPaths: the root comparison ignores case where the platform does.
func (f *facts) foldsPaths() bool { return f.call.Host.FoldPaths }

// workspacePaths gives the readings of a path: relative to the root when it lies inside, as it is when it is relative;
// nothing when it is absolute and outside. "." and ".." are resolved by the text alone, and a relative path that leaves
// the root and comes back is also read as what it comes back to.
func workspacePaths(root, path string, fold bool) []string {
	path = strings.ReplaceAll(path, `\`, "/")
	root = strings.TrimRight(strings.ReplaceAll(root, `\`, "/"), "/")
	if path == "" {
		return nil
	}
	drive := driveOf(path)
	switch {
	case drive != "":
		rootDrive := driveOf(root + "/")
		if !strings.EqualFold(drive, rootDrive) {
			return nil
		}
		return inside(root[len(rootDrive):], cleanSlashes(path[len(drive):]), fold)
	case path[0] == '/':
		return inside(root, cleanSlashes(path), fold)
	}
	clean := cleanSlashes(path)
	out := []string{clean}
	if strings.HasPrefix(clean, "../") || clean == ".." {
		out = append(out, inside(root, cleanSlashes(root+"/"+clean), fold)...)
	}
	return out
}

// driveOf gives "X:" of "X:/…".
func driveOf(p string) string {
	if len(p) >= 3 && isLetter(p[0]) && p[1] == ':' && p[2] == '/' {
		return p[:2]
	}
	return ""
}

// inside takes the root off an absolute path.
func inside(root, path string, fold bool) []string {
	prefix := root + "/"
	if len(path) <= len(prefix) {
		return nil
	}
	head := path[:len(prefix)]
	if head != prefix && (!fold || !strings.EqualFold(head, prefix)) {
		return nil
	}
	return []string{path[len(prefix):]}
}

// cleanSlashes resolves ".", ".." and empty segments; a trailing slash stays, and what cleans to nothing is ".".
func cleanSlashes(p string) string {
	absolute := strings.HasPrefix(p, "/")
	var out []string
	for _, segment := range strings.Split(p, "/") {
		switch {
		case segment == "" || segment == ".":
		case segment == ".." && len(out) > 0 && out[len(out)-1] != "..":
			out = out[:len(out)-1]
		case segment == ".." && absolute:
		default:
			out = append(out, segment)
		}
	}
	clean := strings.Join(out, "/")
	trailing := strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.")
	switch {
	case absolute && clean == "":
		return "/"
	case absolute:
		clean = "/" + clean
	case clean == "":
		return "."
	}
	if trailing {
		clean += "/"
	}
	return clean
}
