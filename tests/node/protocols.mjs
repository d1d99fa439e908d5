// The ways to ask in the three protocols beside chat; see ask.mjs. `request` is the body as the protocol has it. There is
// one choice; `finish` is in the protocol's own words.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

export const ways = {
  "completions stream": async (asked, answer) =>
    readTexts(await openai(asked).completions.create({ ...bodyOf(asked), ...USAGE }), answer),
  "completions whole": async (asked, answer) =>
    readText(await openai(asked).completions.create(bodyOf(asked)), answer),
  "responses stream": async (asked, answer) =>
    readEvents(await openai(asked).responses.create({ ...bodyOf(asked), stream: true }), answer),
  "responses helper": responsesHelper,
  "responses whole": async (asked, answer) => readResponse(await openai(asked).responses.create(bodyOf(asked)), answer),
  "messages stream": async (asked, answer) =>
    readBlocks(await anthropic(asked).messages.create({ ...bodyOf(asked), stream: true }), answer),
  "messages helper": messagesHelper,
  "messages whole": async (asked, answer) => readMessage(await anthropic(asked).messages.create(bodyOf(asked)), answer),
  "messages count": async (asked, answer) => {
    const { max_tokens: _, ...body } = bodyOf(asked);
    answer.usage = [(await anthropic(asked).messages.countTokens(body)).input_tokens, 0];
  },
};

const USAGE = { stream: true, stream_options: { include_usage: true } };

function bodyOf(asked) {
  return { model: asked.model, ...asked.request };
}

function openai(asked) {
  return new OpenAI({ baseURL: `${asked.url}/v1`, apiKey: asked.key, maxRetries: 0 });
}

function anthropic(asked) {
  return new Anthropic({ baseURL: asked.url, apiKey: asked.key, maxRetries: 0 });
}

function made(answer, content, reasoning, calls, finish) {
  answer.choices = [{ content, reasoning, calls, finish }];
}

// --- completions -----------------------------------------------------------------------------------------------------

function readText(told, answer) {
  const [choice] = told.choices;
  made(answer, choice.text, "", [], choice.finish_reason);
  answer.usage = [told.usage.prompt_tokens, told.usage.completion_tokens];
}

async function readTexts(stream, answer) {
  let finish = null;
  for await (const chunk of stream) {
    if (chunk.usage) answer.usage = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
    for (const choice of chunk.choices) {
      if (choice.text) answer.parts.push(choice.text);
      finish = choice.finish_reason ?? finish;
    }
  }
  made(answer, answer.parts.join(""), "", [], finish);
}

// --- responses -------------------------------------------------------------------------------------------------------

function readResponse(told, answer) {
  const of = (kind) => told.output.filter((item) => item.type === kind);
  const thought = of("reasoning").flatMap((item) => [...item.summary, ...(item.content ?? [])]);
  const calls = of("function_call").map((item) => [item.name, item.arguments]);
  made(answer, told.output_text, thought.map((part) => part.text).join(""), calls, told.status);
  if (told.error) throw new Error(`${told.error.code}: ${told.error.message}`);
  answer.usage = [told.usage.input_tokens, told.usage.output_tokens];
}

async function readEvents(stream, answer) {
  const items = [];
  let last = null;
  for await (const event of stream) {
    last = event;
    if (event.type === "response.output_item.added") {
      items[event.output_index] = { kind: event.item.type, name: event.item.name, text: "" };
    } else if (event.type.endsWith(".delta")) {
      items[event.output_index].text += event.delta;
      if (event.type === "response.output_text.delta") answer.parts.push(event.delta);
    }
  }
  const text = (kind) => items.filter((item) => item.kind === kind).map((item) => item.text).join("");
  const calls = items.filter((item) => item.kind === "function_call").map((item) => [item.name, item.text]);
  made(answer, text("message"), text("reasoning"), calls, last.response.status);
  if (last.response.error) throw new Error(`${last.response.error.code}: ${last.response.error.message}`);
  answer.usage = [last.response.usage.input_tokens, last.response.usage.output_tokens];
}

async function responsesHelper(asked, answer) {
  const stream = openai(asked).responses.stream(bodyOf(asked));
  stream.on("response.output_text.delta", (event) => answer.parts.push(event.delta));
  readResponse(await stream.finalResponse(), answer);
}

// --- messages --------------------------------------------------------------------------------------------------------

function readMessage(told, answer) {
  const of = (kind) => told.content.filter((block) => block.type === kind);
  const calls = of("tool_use").map((block) => [block.name, JSON.stringify(block.input)]);
  const join = (kind, field) => of(kind).map((block) => block[field]).join("");
  made(answer, join("text", "text"), join("thinking", "thinking"), calls, told.stop_reason);
  answer.usage = [told.usage.input_tokens, told.usage.output_tokens];
}

async function readBlocks(stream, answer) {
  const blocks = [];
  let finish = null;
  for await (const event of stream) {
    if (event.type === "message_start") answer.usage = [event.message.usage.input_tokens, 0];
    else if (event.type === "content_block_start") blocks[event.index] = { ...event.content_block, said: "" };
    else if (event.type === "content_block_delta") {
      const { type, text, thinking, partial_json } = event.delta;
      blocks[event.index].said += text ?? thinking ?? partial_json ?? "";
      if (type === "text_delta") answer.parts.push(text);
    } else if (event.type === "message_delta") {
      finish = event.delta.stop_reason;
      answer.usage[1] = event.usage.output_tokens;
    }
  }
  const text = (kind) => blocks.filter((block) => block.type === kind).map((block) => block.said).join("");
  const calls = blocks.filter((block) => block.type === "tool_use").map((block) => [block.name, block.said || "{}"]);
  made(answer, text("text"), text("thinking"), calls, finish);
}

async function messagesHelper(asked, answer) {
  const stream = anthropic(asked).messages.stream(bodyOf(asked));
  stream.on("text", (text) => answer.parts.push(text));
  readMessage(await stream.finalMessage(), answer);
}
