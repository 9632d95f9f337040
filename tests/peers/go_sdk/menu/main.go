// The official Go SDK offering something of everything that it has, over stdio or Streamable HTTP.
// usage: menu stdio | http        http prints "Listening on URL"
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type none struct{}

type pair struct {
	A int `json:"a" jsonschema:"the first"`
	B int `json:"b,omitempty"`
}

type sum struct {
	Sum int `json:"sum"`
}

var (
	stopped = make(chan struct{}, 1)
	server  *mcp.Server
)

func text(words string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: words}}}
}

func tool[In, Out any](name, description string, run mcp.ToolHandlerFor[In, Out]) {
	mcp.AddTool(server, &mcp.Tool{Name: name, Description: description}, run)
}

func offerTools() {
	tool("add", "Add two numbers.", func(_ context.Context, _ *mcp.CallToolRequest, in pair) (*mcp.CallToolResult, sum, error) {
		return nil, sum{in.A + in.B}, nil
	})
	tool("link", "Give a link to something that no list has.", func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
		link := &mcp.ResourceLink{URI: "menu://many/42", Name: "the answer", MIMEType: "text/plain"}
		return &mcp.CallToolResult{Content: []mcp.Content{link, &mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"}}}, nil, nil
	})
	tool("fail", "Fail.", func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("this is a fault")
	})
	tool("steps", "Tell how far it has come, and log.", func(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			for done := 1.0; done <= 3; done++ {
				said := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 3, Message: fmt.Sprintf("step %v", done)}
				if err := req.Session.NotifyProgress(ctx, said); err != nil {
					return nil, nil, err
				}
			}
		}
		err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Logger: "menu", Data: "three steps"})
		return text("done"), nil, err
	})
	tool("ask", "Ask a form.", func(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		form := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}}, Required: []string{"name"}}
		answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "For whom?", RequestedSchema: form})
		if err != nil {
			return nil, nil, err
		}
		return text(fmt.Sprint(answer.Action, " ", answer.Content["name"])), nil, nil
	})
	tool("sample", "Have a model say something.", func(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		said := &mcp.SamplingMessage{Role: "user", Content: &mcp.TextContent{Text: "Say something."}}
		answer, err := req.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{said}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{answer.Content}}, nil, nil
	})
	tool("where", "Ask for the roots.", func(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		answer, err := req.Session.ListRoots(ctx, nil)
		if err != nil {
			return nil, nil, err
		}
		return text(fmt.Sprint(answer.Roots[0].Name, " ", answer.Roots[0].URI)), nil, nil
	})
	tool("wait", "Wait until it is cancelled.", func(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Total: 1})
		<-ctx.Done()
		stopped <- struct{}{}
		return nil, nil, ctx.Err()
	})
	tool("was_stopped", "Wait until a call was cancelled.", func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		select {
		case <-stopped:
			return text("a call was cancelled"), nil, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	})
	tool("touch", "Change a resource and the list of tools.", func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
		err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "menu://text"})
		tool("new", "Be new.", func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return text("new"), nil, nil
		})
		return text("touched"), nil, err
	})
	tool("untouch", "Take back what touch did.", func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
		server.RemoveTools("new")
		return text("as before"), nil, nil
	})
	raw := &mcp.Tool{Name: "raw", Title: "As it is", Meta: mcp.Meta{"menu.example/kind": "raw"}, InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
	server.AddTool(raw, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(req.Params.Arguments)), nil
	})
}

func offerTheRest() {
	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(req.Params.URI, "/0") {
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "text/plain", Text: "read " + req.Params.URI}}}, nil
	}
	server.AddResource(&mcp.Resource{URI: "menu://text", Name: "text", Title: "A text", MIMEType: "text/plain"}, read)
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "menu://many/{number}", Name: "many"}, read)
	greet := &mcp.Prompt{Name: "greet", Title: "Greeting", Arguments: []*mcp.PromptArgument{{Name: "name", Required: true}}}
	server.AddPrompt(greet, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		said := &mcp.TextContent{Text: "Hello " + req.Params.Arguments["name"]}
		return &mcp.GetPromptResult{Description: "Greet somebody.", Messages: []*mcp.PromptMessage{{Role: "user", Content: said}}}, nil
	})
}

func main() {
	server = mcp.NewServer(
		&mcp.Implementation{Name: "menu", Title: "The menu", Version: "3.2.1", WebsiteURL: "https://menu.example/"},
		&mcp.ServerOptions{
			Instructions:       "Everything that the SDK has.",
			SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
			CompletionHandler: func(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
				values := []string{req.Params.Argument.Value + "da", req.Params.Argument.Value + "nna"}
				return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: 2}}, nil
			},
		},
	)
	offerTools()
	offerTheRest()
	if os.Args[1] == "stdio" {
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	}
	routes := http.NewServeMux()
	routes.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("Listening on http://%s/mcp\n", listener.Addr())
	log.Fatal(http.Serve(listener, routes))
}
