//! The official Rust SDK serving one `echo` tool over Streamable HTTP on axum and one thread, without sessions, answering in JSON.
//! Prints `Listening on URL` like our own server, so that the bench can start either.

use rmcp::{
    ServerHandler,
    handler::server::wrapper::Parameters,
    tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Said {
    text: String,
}

#[derive(Clone)]
struct Echo;

#[tool_router]
impl Echo {
    #[tool(description = "Say the same again.")]
    fn echo(&self, Parameters(Said { text }): Parameters<Said>) -> String {
        text
    }
}

#[tool_handler]
impl ServerHandler for Echo {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut config = StreamableHttpServerConfig::default();
    config.legacy_session_mode = false;
    config.json_response = true;
    let service: StreamableHttpService<Echo, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Echo), Default::default(), config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("Listening on http://{}", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await
}
