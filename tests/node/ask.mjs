// Asks a server as users of the JavaScript clients would. In: a JSON array on stdin, of {client, url, model, key, request,
// forced}; out: a JSON array on stdout, for each {choices, usage, error, parts}. A choice is {content, reasoning, calls:
// [[name, arguments]], finish}; `parts` are the pieces of content in the order in which they came.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText } from "ai";
import OpenAI from "openai";
import { ways as protocols } from "./protocols.mjs";

const ways = {
  ...protocols,
  "openai stream": async (asked, answer) => readChunks(await openai(asked, STREAM), answer),
  "openai helper": openaiHelper,
  "openai whole": async (asked, answer) => readCompletion(await openai(asked, {}), answer),
  "ai stream": aiStream,
  "ai whole": aiWhole,
};

const STREAM = { stream: true, stream_options: { include_usage: true } };

function choice(answer, index) {
  return (answer.choices[index] ??= { content: "", reasoning: "", calls: [], finish: null });
}

function messagesOf(asked) {
  return asked.request.messages ?? [{ role: "user", content: "When is high tide?" }];
}

// --- openai ----------------------------------------------------------------------------------------------------------

function clientOf(asked) {
  return new OpenAI({ baseURL: asked.url, apiKey: asked.key, maxRetries: 0 });
}

function bodyOf(asked, more) {
  return { ...asked.request, model: asked.model, messages: messagesOf(asked), ...(asked.forced ?? {}), ...more };
}

function openai(asked, more) {
  return clientOf(asked).chat.completions.create(bodyOf(asked, more));
}

function readUsage(told, answer) {
  answer.usage = [told.prompt_tokens, told.completion_tokens, told.total_tokens];
}

function readCompletion(told, answer) {
  for (const one of told.choices) {
    const made = choice(answer, one.index);
    made.content = one.message.content ?? "";
    made.reasoning = one.message.reasoning_content ?? "";
    made.calls = (one.message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]);
    made.finish = one.finish_reason;
  }
  readUsage(told.usage, answer);
}

async function readChunks(stream, answer) {
  for await (const chunk of stream) {
    if (chunk.usage) readUsage(chunk.usage, answer);
    for (const one of chunk.choices) {
      const made = choice(answer, one.index);
      if (one.delta.content) answer.parts.push(one.delta.content);
      made.content += one.delta.content ?? "";
      made.reasoning += one.delta.reasoning_content ?? "";
      for (const entry of one.delta.tool_calls ?? []) {
        const call = (made.calls[entry.index] ??= ["", ""]);
        call[0] += entry.function?.name ?? "";
        call[1] += entry.function?.arguments ?? "";
      }
      made.finish = one.finish_reason ?? made.finish;
    }
  }
}

async function openaiHelper(asked, answer) {
  const stream = clientOf(asked).chat.completions.stream(bodyOf(asked, STREAM));
  const reasoning = {};
  stream.on("content", (delta) => answer.parts.push(delta));
  // The helper keeps only the last piece of a field that it does not know: who wants reasoning reads the chunks.
  stream.on("chunk", (chunk) => {
    for (const one of chunk.choices) {
      reasoning[one.index] = (reasoning[one.index] ?? "") + (one.delta.reasoning_content ?? "");
    }
  });
  readCompletion(await stream.finalChatCompletion(), answer);
  for (const made of answer.choices) made.reasoning = reasoning[answer.choices.indexOf(made)];
}

// --- ai, with its provider for servers like ours ---------------------------------------------------------------------

function settingsOf(asked) {
  const { tools = [], max_tokens, stop, tool_choice, temperature, messages: _, ...rest } = asked.request;
  const provider = createOpenAICompatible({
    name: "playhead", baseURL: asked.url, apiKey: asked.key, includeUsage: true,
  });
  const described = tools.map(({ function: one }) => [
    one.name, { description: one.description, inputSchema: jsonSchema(one.parameters ?? { type: "object" }) },
  ]);
  return {
    model: provider(asked.model),
    messages: messagesOf(asked),
    maxRetries: 0,
    temperature,
    maxOutputTokens: max_tokens,
    stopSequences: stop === undefined ? undefined : [stop].flat(),
    toolChoice: tool_choice,
    tools: described.length ? Object.fromEntries(described) : undefined,
    providerOptions: { playhead: { ...rest, ...(asked.forced ?? {}) } },
  };
}

function readAiUsage(told, answer) {
  answer.usage = [told.inputTokens, told.outputTokens, told.totalTokens];
}

async function aiStream(asked, answer) {
  const made = choice(answer, 0);
  const result = streamText({ ...settingsOf(asked), onError() {} });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") {
      answer.parts.push(part.text);
      made.content += part.text;
    } else if (part.type === "reasoning-delta") made.reasoning += part.text;
    else if (part.type === "tool-call") made.calls.push([part.toolName, JSON.stringify(part.input)]);
    else if (part.type === "error") throw part.error;
    else if (part.type === "finish") {
      made.finish = part.rawFinishReason ?? part.finishReason;
      readAiUsage(part.totalUsage, answer);
    }
  }
}

async function aiWhole(asked, answer) {
  const told = await generateText(settingsOf(asked));
  const made = choice(answer, 0);
  made.content = told.text;
  made.reasoning = told.reasoningText ?? "";
  made.calls = told.toolCalls.map((call) => [call.toolName, JSON.stringify(call.input)]);
  made.finish = told.rawFinishReason ?? told.finishReason;
  readAiUsage(told.totalUsage, answer);
}

// --- one after the other ---------------------------------------------------------------------------------------------

function failure(error) {
  return {
    status: error?.status ?? error?.statusCode ?? null,
    // Anthropic's errors have a type, and no code.
    code: error && "code" in error ? (error.code ?? null) : (error?.data?.error?.code ?? error?.type ?? null),
    message: error?.message ?? String(error),
  };
}

async function answerTo(asked) {
  const answer = { choices: [], usage: null, error: null, parts: [] };
  try {
    await ways[asked.client](asked, answer);
  } catch (error) {
    answer.error = failure(error);
  }
  return answer;
}

const answers = [];
for (const asked of JSON.parse(await new Response(process.stdin).text())) answers.push(await answerTo(asked));
console.log(JSON.stringify(answers));
