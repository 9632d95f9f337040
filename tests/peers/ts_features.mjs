// What both generations of the official TypeScript SDK are asked to do with the server of fixtures. What they call by
// different names comes in as `sdk`; what came of each feature goes out as one JSON object, and a test judges it.

export const PATIENCE = 60_000; // milliseconds that anything may take on a slow machine
export const CAPABILITIES = { sampling: {}, elicitation: {}, roots: {} };
const WATCHED = "test://watched-resource";

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Whether `look` became true in time. */
export async function until(look) {
  for (const deadline = Date.now() + PATIENCE; Date.now() < deadline; await pause(20)) if (await look()) return true;
  return false;
}

export const text = (result) => result.content.filter(({ type }) => type === "text").map(({ text }) => text).join(" ");

const codeOf = (promise) => promise.then(() => null, (error) => error.code ?? String(error));

/** What the client answers when it is asked, and what it was told without asking. */
export function listener() {
  const told = { asked: [], logged: [], changed: [] };
  const field = ({ type, enum: choices, oneOf }) => choices?.[0] ?? oneOf?.[0].const ?? (type === "boolean" ? true : null);
  return {
    told,
    requests: {
      "elicitation/create": async ({ params }) => {
        told.asked.push(params.message);
        const fields = Object.entries(params.requestedSchema.properties);
        return {
          action: "accept",
          content: Object.fromEntries(fields.map(([name, schema]) => [name, field(schema) ?? `my ${name}`])),
        };
      },
      "sampling/createMessage": async ({ params }) => {
        const [{ content }] = params.messages;
        told.asked.push((Array.isArray(content) ? content[0] : content).text);
        return { role: "assistant", content: { type: "text", text: "a sample" }, model: "none" };
      },
      "roots/list": async () => {
        told.asked.push("roots");
        return { roots: [{ uri: "file:///srv/project", name: "project" }] };
      },
    },
    notifications: {
      "notifications/message": ({ params }) => void told.logged.push(params.data),
      "notifications/tools/list_changed": () => void told.changed.push("tools"),
      "notifications/resources/updated": ({ params }) => void told.changed.push(params.uri),
    },
  };
}

export async function bothEras(sdk, told) {
  const { client, call } = sdk;
  const progress = [];
  const tools = await client.listTools();
  const resources = await client.listResources();
  const templates = await client.listResourceTemplates();
  const prompts = await client.listPrompts();
  const read = async (uri) => (await client.readResource({ uri })).contents[0];
  const prompt = (name, given) => client.getPrompt({ name, arguments: given });
  const complete = async (ref, name, value) => (await client.complete({ ref, argument: { name, value } })).completion.values;
  const failed = await call("test_error_handling");
  return {
    revision: sdk.revision(),
    server: client.getServerVersion()?.title ?? null,
    tools: tools.tools.map(({ name }) => name),
    text: text(await call("test_simple_text")),
    kinds: (await call("test_multiple_content_types")).content.map(({ type }) => type),
    structured: (await call("weather", { town: "Ghent" })).structuredContent,
    failed: [failed.isError, text(failed)],
    wrong_arguments: (await call("weather", { town: 7 })).isError,
    unknown_tool: await codeOf(call("no_such_tool")),
    progress_text: text(
      await call("test_tool_with_progress", {}, { onprogress: (p) => progress.push([p.progress, p.total, p.message]) }),
    ),
    progress,
    logging_text: text(await call("test_tool_with_logging", {}, {}, sdk.logMeta)),
    logged: told.logged,
    elicitation: text(await call("test_elicitation", { message: "Who are you?" })),
    sampling: text(await call("test_sampling", { prompt: "Say something" })),
    roots: text(await call("test_input_required_result_list_roots")),
    rounds: text(await call("test_input_required_result_multi_round")),
    three_at_once: text(await call("test_input_required_result_multiple_inputs")),
    asked: told.asked,
    resources: resources.resources.map(({ uri }) => uri),
    templates: templates.resourceTemplates.map(({ uriTemplate }) => uriTemplate),
    read: (await read("test://static-text")).text,
    read_bytes: Buffer.from((await read("test://static-binary")).blob, "base64").length,
    read_template: JSON.parse((await read("test://template/42/data")).text),
    unknown_resource: await codeOf(read("test://nothing")),
    prompts: prompts.prompts.map(({ name }) => name),
    prompt: (await prompt("test_prompt_with_arguments", { arg1: "one", arg2: "two" })).messages[0].content.text,
    asking_prompt: (await prompt("test_input_required_result_prompt")).messages[0].content.text,
    unknown_prompt: await codeOf(prompt("no_such_prompt")),
    completion: await complete({ type: "ref/prompt", name: "test_prompt_with_arguments" }, "arg1", "par"),
    no_completion: await complete({ type: "ref/resource", uri: "test://template/{id}/data" }, "id", ""),
  };
}

export async function legacyOnly({ client, call }, told) {
  await client.ping();
  await client.subscribeResource({ uri: WATCHED });
  await call("touch_watched_resource");
  const updated = await until(() => told.changed.includes(WATCHED));
  await client.unsubscribeResource({ uri: WATCHED });
  await call("test_trigger_tool_change");
  return { resource_updated: updated, tools_changed: await until(() => told.changed.includes("tools")) };
}

/** Whether the server learned that the client waits no longer. */
export async function stopACall({ call, revision, name }) {
  const label = `${name} ${revision()}`;
  const stop = new AbortController();
  const onprogress = () => stop.abort();
  await call("wait_for_cancellation", { label }, { signal: stop.signal, onprogress }).catch(() => {});
  return until(async () => text(await call("stopped_calls")).includes(label));
}
