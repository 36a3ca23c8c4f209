package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// parser is a value that reads its text.
type parser interface{ parse(text string) error }

var (
	parserType   = reflect.TypeFor[parser]()
	durationType = reflect.TypeFor[time.Duration]()
)

// decode sets the keys that content holds in c, and collects a problem for each that is unknown, given twice or malformed.
func decode(content []byte, c *Config, p *problems) {
	d := yaml.NewDecoder(bytes.NewReader(content))
	var document, more yaml.Node
	err := d.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		return // an empty file
	case err != nil:
		p.add("", "%s", err)
		return
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		p.add("", "more than one YAML document")
	}
	decodeNode(document.Content[0], reflect.ValueOf(c).Elem(), "", p)
}

func decodeNode(n *yaml.Node, v reflect.Value, key string, p *problems) {
	if p.lines[key] == 0 {
		p.lines[key] = n.Line
	}
	switch {
	case n.Kind == yaml.AliasNode:
		p.add(key, "aliases (*name) are not supported: write the value out")
	case v.Addr().Type().Implements(parserType) || v.Kind() != reflect.Struct && v.Kind() != reflect.Slice:
		decodeScalar(n, v, key, p)
	case v.Kind() == reflect.Slice:
		decodeList(n, v, key, p)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		// A section without keys keeps its defaults.
	case n.Kind != yaml.MappingNode:
		p.add(key, "want a section with keys of its own")
	default:
		decodeStruct(n, v, key, p)
	}
}

func decodeStruct(n *yaml.Node, v reflect.Value, key string, p *problems) {
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		path := join(key, name)
		p.lines[path] = n.Content[i].Line
		field := fieldByKey(v, name)
		switch {
		case !field.IsValid():
			p.add(path, "unknown key%s", suggest(v.Type(), name))
		case seen[name]:
			p.add(path, "is given twice")
		default:
			decodeNode(n.Content[i+1], field, path, p)
		}
		seen[name] = true
	}
}

func decodeList(n *yaml.Node, v reflect.Value, key string, p *problems) {
	if n.Kind != yaml.SequenceNode {
		p.add(key, "want a list, as in [a, b]")
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		decodeNode(item, list.Index(i), fmt.Sprintf("%s[%d]", key, i), p)
	}
	v.Set(list)
}

func decodeScalar(n *yaml.Node, v reflect.Value, key string, p *problems) {
	if n.Kind != yaml.ScalarNode {
		p.add(key, "want a single value")
		return
	}
	if n.Tag == "!!null" {
		p.add(key, "has no value: leave the key out for its default")
		return
	}
	p.addError(key, setText(v, n.Value))
}

// setText sets v to what text means for its type.
func setText(v reflect.Value, text string) error {
	if p, ok := v.Addr().Interface().(parser); ok {
		return p.parse(text)
	}
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration: want a number with a unit (ms, s, m, h), as in 10s", text)
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(int64(n))
	case v.Kind() == reflect.Bool:
		on := text == "true" || text == "on"
		if !on && text != "false" && text != "off" {
			return fmt.Errorf("%q is not one of on, off, true, false", text)
		}
		v.SetBool(on)
	default:
		return fmt.Errorf("values of type %s cannot be read", v.Type())
	}
	return nil
}
