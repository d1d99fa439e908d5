// Streams whose events have ids, read with the JavaScript SDKs. In: a JSON array on stdin, of {client, url, protocol, path,
// request}; out: a JSON array on stdout, for each {text, error}. With a `request` it is posted with `event_ids`; without
// one `path` is a stream that is taken up again.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { streamText } from "ai";
import OpenAI from "openai";

const IDS = { query: { event_ids: "true" } };

function openai(asked) {
  return new OpenAI({ baseURL: `${asked.url}/v1`, apiKey: "k", maxRetries: 0 });
}

function anthropic(asked) {
  return new Anthropic({ baseURL: asked.url, apiKey: "k", maxRetries: 0 });
}

const said = {
  chat: (event) => event.choices[0]?.delta.content ?? "",
  completions: (event) => event.choices[0]?.text ?? "",
  responses: (event) => (event.type === "response.output_text.delta" ? event.delta : ""),
  messages: (event) => (event.type === "content_block_delta" ? event.delta.text : ""),
};

async function read(asked, stream) {
  let text = "";
  for await (const event of stream) text += said[asked.protocol](event);
  return text;
}

const ways = {
  "openai chat": (asked) => openai(asked).chat.completions.create(asked.request, IDS),
  "openai completions": (asked) => openai(asked).completions.create(asked.request, IDS),
  "openai responses": (asked) => openai(asked).responses.create(asked.request, IDS),
  "anthropic messages": (asked) => anthropic(asked).messages.create(asked.request, IDS),
  "openai again": (asked) => openai(asked).get(asked.path, { stream: true }),
  "anthropic again": (asked) => anthropic(asked).get(asked.path, { stream: true }),
};

const helpers = {
  "openai chat helper": async (asked) => {
    const stream = openai(asked).chat.completions.stream(asked.request, IDS);
    return (await stream.finalChatCompletion()).choices[0].message.content;
  },
  "openai responses helper": async (asked) => {
    const { stream: _, ...body } = asked.request;
    return (await openai(asked).responses.stream(body, IDS).finalResponse()).output_text;
  },
  "anthropic messages helper": async (asked) => {
    const { stream: _, ...body } = asked.request;
    return (await anthropic(asked).messages.stream(body, IDS).finalMessage()).content[0].text;
  },
  "ai chat": async (asked) => {
    const provider = createOpenAICompatible({
      name: "playhead", baseURL: `${asked.url}/v1`, apiKey: "k", queryParams: { event_ids: "true" },
    });
    const { model, messages } = asked.request;
    const result = streamText({ model: provider(model), messages, maxRetries: 0, onError() {} });
    let text = "";
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") text += part.text;
      else if (part.type === "error") throw part.error;
    }
    return text;
  },
};

async function answerTo(asked) {
  try {
    const helper = helpers[asked.client];
    return { text: await (helper ? helper(asked) : read(asked, await ways[asked.client](asked))), error: null };
  } catch (error) {
    return { text: null, error: error?.message ?? String(error) };
  }
}

const answers = [];
for (const asked of JSON.parse(await new Response(process.stdin).text())) answers.push(await answerTo(asked));
console.log(JSON.stringify(answers));
