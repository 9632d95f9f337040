// A collector that takes OTLP over HTTP, in JSON, with the reader of OpenTelemetry's own collector. It says on its first line where it
// listens, a free port or as its argument has it, and then a line for each span and each point that it was given.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

var lines sync.Mutex

func say(what map[string]any) {
	lines.Lock()
	defer lines.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(what)
}

func read(answer http.ResponseWriter, asked *http.Request) []byte {
	body, err := io.ReadAll(io.LimitReader(asked.Body, 16<<20))
	if err != nil || asked.Header.Get("Content-Type") != "application/json" {
		http.Error(answer, "no JSON", http.StatusUnsupportedMediaType)
		return nil
	}
	return body
}

func traces(answer http.ResponseWriter, asked *http.Request) {
	body := read(answer, asked)
	if body == nil {
		return
	}
	request := ptraceotlp.NewExportRequest()
	if err := request.UnmarshalJSON(body); err != nil {
		say(map[string]any{"problem": err.Error()})
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	for _, resource := range request.Traces().ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				say(map[string]any{
					"resource": resource.Resource().Attributes().AsRaw(), "scope": scope.Scope().Name(),
					"trace": span.TraceID().String(), "span": span.SpanID().String(), "parent": span.ParentSpanID().String(),
					"state": span.TraceState().AsRaw(), "name": span.Name(), "kind": span.Kind().String(),
					"nanoseconds": int64(span.EndTimestamp()) - int64(span.StartTimestamp()),
					"status":      span.Status().Code().String(), "attributes": span.Attributes().AsRaw(),
					"key": asked.Header.Get("Authorization"),
				})
			}
		}
	}
	done(answer, ptraceotlp.NewExportResponse().MarshalJSON)
}

func metrics(answer http.ResponseWriter, asked *http.Request) {
	body := read(answer, asked)
	if body == nil {
		return
	}
	request := pmetricotlp.NewExportRequest()
	if err := request.UnmarshalJSON(body); err != nil {
		say(map[string]any{"problem": err.Error()})
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	for _, resource := range request.Metrics().ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				points(metric)
			}
		}
	}
	done(answer, pmetricotlp.NewExportResponse().MarshalJSON)
}

func points(metric pmetric.Metric) {
	point := func(attributes pcommon.Map, value any) {
		say(map[string]any{"metric": metric.Name(), "type": metric.Type().String(), "attributes": attributes.AsRaw(), "value": value})
	}
	switch metric.Type() {
	case pmetric.MetricTypeSum:
		for _, each := range metric.Sum().DataPoints().All() {
			point(each.Attributes(), each.DoubleValue())
		}
	case pmetric.MetricTypeGauge:
		for _, each := range metric.Gauge().DataPoints().All() {
			point(each.Attributes(), each.DoubleValue())
		}
	case pmetric.MetricTypeHistogram:
		for _, each := range metric.Histogram().DataPoints().All() {
			if each.BucketCounts().Len() != each.ExplicitBounds().Len()+1 {
				say(map[string]any{"problem": "bounds and buckets do not go together"})
			}
			point(each.Attributes(), each.Count())
		}
	default:
		say(map[string]any{"problem": "a metric of no type", "metric": metric.Name()})
	}
}

func done(answer http.ResponseWriter, marshal func() ([]byte, error)) {
	said, err := marshal()
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	answer.Header().Set("Content-Type", "application/json")
	_, _ = answer.Write(said)
}

func main() {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say(map[string]any{"listens": "http://" + listener.Addr().String()})
	http.HandleFunc("POST /v1/traces", traces)
	http.HandleFunc("POST /v1/metrics", metrics)
	_ = http.Serve(listener, nil)
}
