package config

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"walproxy/integration/tlstest"
)

const filesDir = "../../../../configs"

// reference.yaml is the code's defaults, every key of them, each with an explanation.
func TestReference(t *testing.T) {
	file := filepath.Join(filesDir, "reference.yaml")
	got, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Upstream.Conninfo, want.Data.Dir = got.Upstream.Conninfo, got.Data.Dir
	if !reflect.DeepEqual(got, want) {
		t.Errorf("reference.yaml holds\n%#v\nthe defaults are\n%#v", got, want)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(content, &tree); err != nil {
		t.Fatal(err)
	}
	inFile, inCode := make(map[string]bool), make(map[string]bool)
	fileKeys("", tree, inFile)
	codeKeys("", reflect.TypeFor[Config](), inCode)
	if !maps.Equal(inFile, inCode) {
		t.Errorf("keys of reference.yaml:\n%v\nkeys of the code:\n%v", slices.Sorted(maps.Keys(inFile)), slices.Sorted(maps.Keys(inCode)))
	}
	for _, item := range []reflect.Type{reflect.TypeFor[User](), reflect.TypeFor[AuthRule](), reflect.TypeFor[Mapping]()} {
		for i := range item.NumField() {
			if key := item.Field(i).Tag.Get(keyTag); !strings.Contains(string(content), key+": ") {
				t.Errorf("no comment shows the key %s of a %s", key, item.Name())
			}
		}
	}
	checkExplained(t, string(content))
}

func fileKeys(prefix string, tree map[string]any, into map[string]bool) {
	for name, value := range tree {
		if section, ok := value.(map[string]any); ok {
			fileKeys(join(prefix, name), section, into)
		} else {
			into[join(prefix, name)] = true
		}
	}
}

func codeKeys(prefix string, t reflect.Type, into map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := join(prefix, f.Tag.Get(keyTag))
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Rule]() {
			codeKeys(key, f.Type, into)
		} else {
			into[key] = true
		}
	}
}

// checkExplained wants a comment above each key, or above the key before it of the same group.
func checkExplained(t *testing.T, content string) {
	t.Helper()
	groups := []string{"backoff_max:", "key_file:", "max_version:", "write:", "flush:", "apply:", "auth:", "dir:", "address:", "level:", "data:", "http:"}
	above := ""
	for _, line := range strings.Split(content, "\n") {
		text := strings.TrimSpace(line)
		key, _, isKey := strings.Cut(text, " ")
		if strings.HasSuffix(key, ":") {
			isKey = true
		}
		if isKey && text != "" && text[0] != '#' && !strings.HasPrefix(above, "#") && !slices.Contains(groups, key) {
			t.Errorf("no explanation above %q", text)
		}
		above = text
	}
}

// Every configuration in configs loads, says something that is not the default, and keeps to the topology that it is named for.
func TestTopologies(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(filesDir, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	ca, err := tlstest.NewCA(t.TempDir(), "node-a")
	if err == nil {
		_, err = ca.Server("server", "node-a.example")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".rules.yaml") { // Prometheus'
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The certificates are elsewhere.
		c, err := Parse(file, bytes.ReplaceAll(content, []byte("/etc/walproxy/"), []byte(ca.Dir+"/")), nil)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if filepath.Base(file) == "reference.yaml" {
			continue
		}
		if c.Upstream.Slot == "" || !c.Upstream.CreateSlot || c.Listen.Auth.Method != AuthSCRAM || len(c.Listen.Auth.Users) == 0 || !c.Listen.Link {
			t.Errorf("%s: want a slot on the upstream, users, and a link: %+v", file, *c)
		}
	}
}

// The unit's names and limits agree with the program.
func TestUnit(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(filesDir, "systemd", "walproxy.service"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"ExecStart=/usr/local/bin/walproxy run --config ${CREDENTIALS_DIRECTORY}/walproxy.yaml", "StateDirectory=walproxy",
		"RestartPreventExitStatus=2 4", "KillSignal=SIGTERM", "TimeoutStopSec=60s",
	} {
		if !strings.Contains(string(content), "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	if Default().Listen.DrainTimeout > 60*time.Second/2 {
		t.Error("the unit's TimeoutStopSec leaves no room for the drain")
	}
}
