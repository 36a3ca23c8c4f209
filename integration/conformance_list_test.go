package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// statements is how many there are in the list of docs/compatibility.md.
const statements = 64

var (
	statementRow = regexp.MustCompile(`(?m)^\| (\d+) \| (.+?) \| (.*?) ?\| ?(.*?) ?\|$`)
	namedTest    = regexp.MustCompile("(?:`([a-z/]+)` )?(Test[A-Za-z0-9]+)")
	numberedName = regexp.MustCompile(`^"((?:\d\d_)+)[A-Za-z]`)
)

// testFile is what the tests of one file are called, and which statements its subtests name.
type testFile struct {
	tests    []string
	numbered map[int]string // the subtest, by number
}

// TestConformanceList: each statement of docs/compatibility.md is there once and names tests that exist; a subtest carries its number,
// and each that does is in a file of one of the tests that the statement names.
func TestConformanceList(t *testing.T) {
	page, err := os.ReadFile("../docs/compatibility.md")
	must(t, err)
	rows := statementRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != statements {
		t.Fatalf("%d statements, want %d", len(rows), statements)
	}
	files := map[string][]testFile{}
	shownBy := map[int][]string{} // tests as package.Name
	for i, row := range rows {
		number, _ := strconv.Atoi(row[1])
		if number != i+1 {
			t.Fatalf("statement %d in the place of %d", number, i+1)
		}
		for _, named := range namedTest.FindAllStringSubmatch(row[3], -1) {
			dir := named[1]
			if dir == "" {
				dir = "integration"
			}
			if files[dir] == nil {
				files[dir] = testsOf(t, dir)
			}
			if !slices.ContainsFunc(files[dir], func(f testFile) bool { return slices.Contains(f.tests, named[2]) }) {
				t.Errorf("statement %d: there is no %s in %s", number, named[2], dir)
			}
			shownBy[number] = append(shownBy[number], dir+"."+named[2])
		}
		if len(shownBy[number]) == 0 && row[4] == "" {
			t.Errorf("statement %d is neither shown nor excused", number)
		}
	}
	carried := map[int]bool{}
	for dir, list := range files {
		for _, file := range list {
			for number, name := range file.numbered {
				carried[number] = true
				if !slices.ContainsFunc(file.tests, func(test string) bool { return slices.Contains(shownBy[number], dir+"."+test) }) {
					t.Errorf("subtest %s of %s: statement %d names none of %v, only %v", name, dir, number, file.tests, shownBy[number])
				}
			}
		}
	}
	for number := 1; number <= statements; number++ {
		if !carried[number] {
			t.Errorf("no subtest carries the number of statement %d", number)
		}
	}
}

// testsOf reads the test files of a directory of this repository.
func testsOf(t *testing.T, dir string) []testFile {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	must(t, err)
	if len(paths) == 0 {
		t.Fatalf("no tests in %s", dir)
	}
	var files []testFile
	for _, path := range paths {
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(t, err)
		f := testFile{numbered: map[int]string{}}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
					f.tests = append(f.tests, n.Name.Name)
				}
			case *ast.BasicLit:
				if m := numberedName.FindStringSubmatch(n.Value); m != nil {
					for _, text := range strings.Split(strings.TrimSuffix(m[1], "_"), "_") {
						number, _ := strconv.Atoi(text)
						f.numbered[number] = n.Value
					}
				}
			}
			return true
		})
		files = append(files, f)
	}
	return files
}
