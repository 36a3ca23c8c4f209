package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/monitor"
	"walproxy/cmd/walproxy/internal/node"
	"walproxy/protocol/link"
)

const repository = "../.."

// page is a Markdown file. Claims about the program are looked for in its code: blocks between fences, and `spans`.
type page struct {
	file   string
	text   string
	blocks []block
	code   []string // every line of a block, every span
}

type block struct{ language, text string }

var (
	fenced    = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span      = regexp.MustCompile("`([^`]+)`")
	relative  = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	called    = regexp.MustCompile(`^(?:\S*/)?walproxy ([a-z].*)`)
	key       = regexp.MustCompile(`^([a-z]+)\.[a-z_.]+$`)
	logged    = regexp.MustCompile(`\.(?:Info|Warn|Error)\("([^"]+)"`)
	described = regexp.MustCompile(`fqName: "([^"]+)"`)
	metric    = regexp.MustCompile(`(?:^|[^.\w])(walproxy_[a-z_]+)`)
)

// pages returns the documentation: README.md and the other pages beside it, docs/, FORMAT.md.
func pages(t *testing.T) []page {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "protocol/link/*.md", "archive/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	var list []page
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := page{file: file, text: string(content)}
		for _, m := range fenced.FindAllStringSubmatch(p.text, -1) {
			p.blocks = append(p.blocks, block{m[1], m[2]})
			p.code = append(p.code, strings.Split(m[2], "\n")...)
		}
		for _, m := range span.FindAllStringSubmatch(fenced.ReplaceAllString(p.text, ""), -1) {
			p.code = append(p.code, strings.Join(strings.Fields(m[1]), " "))
		}
		list = append(list, p)
	}
	return list
}

// Every command line in the documentation names commands and flags that exist.
func TestDocumentedCommands(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		for _, line := range p.code {
			if m := called.FindStringSubmatch(line); m != nil {
				checked++
				checkCommand(t, p.file, line, strings.Fields(m[1]))
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d command lines were found", checked)
	}
}

func checkCommand(t *testing.T, file, line string, words []string) {
	t.Helper()
	root := newRoot()
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(words)
	if err != nil || cmd.HasSubCommands() && (len(rest) == 0 || !strings.HasPrefix(rest[0], "-")) {
		t.Errorf("%s: no such command: %s", file, line)
		return
	}
	cmd.InitDefaultHelpFlag()
	for _, word := range rest {
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "=")
		if strings.HasPrefix(name, "-") && !hasFlag(cmd, name) {
			t.Errorf("%s: %s has no flag %s: %s", file, cmd.CommandPath(), name, line)
		}
	}
}

func hasFlag(cmd *cobra.Command, name string) bool {
	if long, ok := strings.CutPrefix(name, "--"); ok {
		return cmd.Flags().Lookup(long) != nil
	}
	return len(name) == 2 && cmd.Flags().ShorthandLookup(name[1:]) != nil
}

// Every command is in the README's table.
func TestReadmeListsCommands(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range newRoot().Commands() {
		if cmd.IsAvailableCommand() && !strings.Contains(string(content), "| `walproxy "+cmd.Name()) {
			t.Errorf("README.md has no row for walproxy %s", cmd.Name())
		}
	}
}

// Every configuration key in the documentation is one of reference.yaml, which another test holds equal to the code.
func TestDocumentedKeys(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "configs", "reference.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	collectKeys(t, keys, string(content))
	checked := 0
	for _, p := range pages(t) {
		named := map[string]bool{}
		for _, text := range p.code {
			name, _, _ := strings.Cut(text, ":")
			if m := key.FindStringSubmatch(name); m != nil && keys[m[1]] {
				named[name] = true
			}
		}
		for _, b := range p.blocks {
			if b.language == "yaml" {
				collectKeys(t, named, b.text)
			}
		}
		for name := range named {
			if checked++; !keys[name] {
				t.Errorf("%s: no key %s in reference.yaml", p.file, name)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d keys were found", checked)
	}
}

// collectKeys adds the dotted names of all keys and sections of a YAML text.
func collectKeys(t *testing.T, into map[string]bool, text string) {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Errorf("%v in\n%s", err, text)
	}
	var walk func(string, map[string]any)
	walk = func(prefix string, tree map[string]any) {
		for name, value := range tree {
			into[prefix+name] = true
			if section, ok := value.(map[string]any); ok {
				walk(prefix+name+".", section)
			}
		}
	}
	walk("", tree)
}

// Every metric in the documentation exists, and docs/operating.md explains each one of the node's own.
func TestDocumentedMetrics(t *testing.T) {
	exist := metrics(t)
	for _, p := range pages(t) {
		for _, text := range p.code {
			for _, m := range metric.FindAllStringSubmatch(text, -1) {
				if m[1] != link.LinkParameter && !slices.Contains(exist, m[1]) {
					t.Errorf("%s: no metric %s", p.file, m[1])
				}
			}
		}
	}
	content, err := os.ReadFile(filepath.Join(repository, "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range exist {
		if strings.HasPrefix(name, "walproxy_") && !strings.Contains(string(content), "`"+name+"`") {
			t.Errorf("docs/operating.md does not explain %s", name)
		}
	}
}

// Every metric in the alert rules exists.
func TestMetricsOfAlerts(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "configs", "walproxy.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	exist, found := metrics(t), 0
	for _, line := range strings.Split(string(content), "\n") {
		expression, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: ")
		if !ok {
			continue
		}
		for _, m := range metric.FindAllStringSubmatch(expression, -1) {
			if found++; !slices.Contains(exist, m[1]) {
				t.Errorf("no metric %s", m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d metrics were found", found)
	}
}

// metrics returns the names that a node has at /metrics.
func metrics(t *testing.T) (names []string) {
	t.Helper()
	cfg, registry := config.Default(), monitor.NewRegistry("v", "r")
	cfg.Data.Dir, cfg.Upstream.Conninfo = t.TempDir(), "host=127.0.0.1 port=1 user=u"
	n, err := node.Open(cfg, zap.NewNop(), registry)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	descs := make(chan *prometheus.Desc)
	go func() { // also those that have no series yet
		registry.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("no name in %s", d)
		}
		names = append(names, m[1])
	}
	return names
}

// Every relative link leads to a file.
func TestDocumentedLinks(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range relative.FindAllStringSubmatch(p.text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(p.file), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", p.file, m[1], err)
			}
		}
	}
}

// What the program logs at info and above is explained in docs/operating.md.
func TestDocumentedMessages(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string]bool{}
	err = filepath.WalkDir(repository, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range logged.FindAllStringSubmatch(string(source), -1) {
			messages[m[1]] = true
		}
		return err
	})
	if err != nil || len(messages) < 20 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	for text := range messages {
		if !strings.Contains(string(content), "`"+text+"`") {
			t.Errorf("docs/operating.md does not explain the message %q", text)
		}
	}
}
