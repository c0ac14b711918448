// Asks a server by the clients that people use: openai, @anthropic-ai/sdk, ollama and, over them, ai of npm. Prints a line
// for each case.
//
//     node clients.mjs ADDRESS LATE FOLDER [RECORD]
//
// FOLDER is that in whose node_modules they are. LATE is the address of a server that ends requests soon, by
// --max-request-seconds. Into RECORD go the requests, a line each, with the form of their answers: tests/serve/test_clients.py
// asks them again, without node.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import assert from 'node:assert/strict';
import http from 'node:http';
import fs from 'node:fs';

const [server, late, folder, record] = process.argv.slice(2);
const require = createRequire(folder + '/');
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const OpenAI = require('openai').default ?? require('openai');
const Anthropic = require('@anthropic-ai/sdk').default ?? require('@anthropic-ai/sdk');
const { Ollama } = require('ollama');
const ai = await load('ai');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { createOpenAI } = await load('@ai-sdk/openai');

// ---- what is recorded --------------------------------------------------------------------------------------------------

let current;
const lines = [], kept = { headers: [], forms: [] };

// The place of a value in a list, which gets it if it has none like it.
function number(list, value) {
  const text = JSON.stringify(value), at = list.findIndex((v) => JSON.stringify(v) === text);
  return at >= 0 ? at : list.push(value) - 1;
}

// The paths of members and the kinds of their values: choices[].message.content string.
function formOf(value, path, out) {
  if (Array.isArray(value)) for (const v of value) formOf(v, path + '[]', out);
  else if (value && typeof value === 'object') for (const [k, v] of Object.entries(value)) formOf(v, path ? path + '.' + k : k, out);
  else out.add(path + ' ' + (value === null ? 'null' : typeof value));
  return out;
}

// Of an answer, or all events of a stream. Drafts are made where they happen to be faster.
function formOfAnswer(type, text) {
  const parts = type === 'application/json' ? [text]
    : type === 'text/event-stream' ? text.split('\n\n').filter((e) => e.includes('data: {')).map((e) => e.slice(e.indexOf('{')))
      : text.split('\n').filter(Boolean);
  const all = new Set();
  for (const part of parts) formOf(JSON.parse(part), '', all);
  return [...all].filter((m) => !m.includes('draft_n')).sort();
}

// Notes each request on its way.
async function recordingProxy() {
  const proxy = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (p) => parts.push(p));
    request.on('end', () => {
      const body = Buffer.concat(parts), name = current;
      const { host, connection, ...headers } = request.headers;
      const onward = http.request(server + request.url, { method: request.method, headers }, (answer) => {
        const got = [];
        response.writeHead(answer.statusCode, answer.headers);
        answer.on('data', (p) => (got.push(p), response.write(p)));
        answer.on('end', () => {
          response.end();
          const type = answer.headers['content-type'].split(';')[0];
          delete headers['content-length'];
          lines.push({ case: name, method: request.method, path: request.url, headers: number(kept.headers, headers), body: body.toString(),
            status: answer.statusCode, type, form: number(kept.forms, formOfAnswer(type, Buffer.concat(got).toString())) });
        });
      });
      onward.end(body);
    });
  });
  await new Promise((ready) => proxy.listen(0, '127.0.0.1', ready));
  return [proxy, 'http://localhost:' + proxy.address().port];
}

const [proxy, address] = record ? await recordingProxy() : [null, server];

// ---- clients -----------------------------------------------------------------------------------------------------------

const openai = new OpenAI({ baseURL: address + '/v1', apiKey: 'any', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: address, apiKey: 'any', maxRetries: 0 });
const ollama = new Ollama({ host: address });
const compatible = createOpenAICompatible({ name: 'hearth', baseURL: address + '/v1', apiKey: 'any', includeUsage: true, supportsStructuredOutputs: true });
const openaiOfAi = createOpenAI({ baseURL: address + '/v1', apiKey: 'any' });

const messages = [{ role: 'user', content: 'How warm is it in Bern?' }];
const city = {
  type: 'object',
  properties: { city: { enum: ['Bern', 'Paris'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const tool = { type: 'function', function: { name: 'weather', description: 'of a city', parameters: city } };
const checkArguments = (a) => assert.ok(['Bern', 'Paris'].includes(a.city) && a.days >= 1 && a.days <= 9);

// Each byte of an answer comes alone, so that characters and lines are cut.
async function byteByByte(url, options) {
  const answer = await fetch(url, options);
  const cut = new TransformStream({ transform(chunk, to) { for (const byte of chunk) to.enqueue(new Uint8Array([byte])); } });
  return new Response(answer.body.pipeThrough(cut), { status: answer.status, headers: answer.headers });
}

const toolOfAi = (f) => ai.tool({ description: 'of a city', inputSchema: ai.jsonSchema(city), execute: f });
const once = { temperature: 0, seed: 1, maxRetries: 0 };

// What both providers of ai do.
async function askByAi(model, more) {
  const ask = { model, prompt: 'How warm is it in Bern?', maxOutputTokens: 20, ...once, ...more };
  const whole = await ai.generateText(ask);
  assert.equal(whole.usage.outputTokens, 20);
  assert.equal(whole.finishReason, 'length');
  const stream = ai.streamText(ask);
  let text = '';
  for await (const part of stream.textStream) text += part;
  assert.equal(text, whole.text);
  assert.equal((await stream.usage).outputTokens, 20);
  const { object } = await ai.generateObject({ ...ask, maxOutputTokens: 200, schema: ai.jsonSchema(city) });
  checkArguments(object);
}

async function callByAi(model) {
  let asked = 0;
  const ask = { model, prompt: 'How warm is it in Bern?', maxOutputTokens: 200, ...once, toolChoice: 'required', stopWhen: ai.stepCountIs(2) };
  const done = await ai.generateText({ ...ask, tools: { weather: toolOfAi((a) => (checkArguments(a), asked++, '12 degrees')) } });
  assert.equal(done.steps.length, 2);
  const stream = ai.streamText({ ...ask, tools: { weather: toolOfAi((a) => (checkArguments(a), asked++, '12 degrees')) } });
  await stream.consumeStream();
  assert.equal(await stream.finishReason, 'tool-calls');
  assert.ok(asked >= 4);
}

const cases = {
  async 'openai: models'() {
    const list = await openai.models.list();
    assert.equal(list.data.length, 1);
    assert.equal((await openai.models.retrieve(list.data[0].id)).object, 'model');
  },
  async 'openai: chat'() {
    const c = await openai.chat.completions.create({ model: 'm', messages, max_tokens: 10, seed: 1 });
    assert.equal(c.choices[0].message.role, 'assistant');
    assert.equal(c.usage.completion_tokens, 10);
  },
  async 'openai: chat as a stream'() {
    const ask = { model: 'm', messages, max_tokens: 20, seed: 1 };
    const whole = await openai.chat.completions.create(ask);
    let text = '', usage;
    for await (const part of await openai.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
      text += part.choices[0]?.delta?.content ?? '';
      usage = part.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, 20);
  },
  async 'openai: the stream helper'() {
    const runner = openai.chat.completions.stream({ model: 'm', messages, max_tokens: 20, seed: 1, n: 2 });
    const done = await runner.finalChatCompletion();
    assert.equal(done.choices.length, 2);
  },
  async 'openai: the stream helper, usage and log probabilities'() {
    const runner = openai.chat.completions.stream({ model: 'm', messages, max_tokens: 6, seed: 1, logprobs: true, stream_options: { include_usage: true } });
    const done = await runner.finalChatCompletion();
    assert.equal(done.choices[0].logprobs.content.length, 6);
    assert.equal((await runner.totalUsage()).completion_tokens, 6);
  },
  async 'openai: a stream that comes byte by byte'() {
    const cut = new OpenAI({ baseURL: address + '/v1', apiKey: 'any', maxRetries: 0, fetch: byteByByte });
    const ask = { model: 'm', messages, max_tokens: 40, seed: 4, temperature: 2, grammar: 'root ::= [äöü€😀]+' };
    const whole = (await openai.chat.completions.create(ask)).choices[0].message.content;
    assert.match(whole, /^[äöü€😀]+$/u);
    assert.equal((await cut.chat.completions.stream(ask).finalChatCompletion()).choices[0].message.content, whole);
  },
  async 'openai: an answer that ends too late'() {
    const client = new OpenAI({ baseURL: late + '/v1', apiKey: 'any' }); // it would try twice more
    const ask = { model: 'm', messages, ignore_eos: true };
    const start = Date.now(), numbers = { type: 'array', items: { type: 'integer' }, minItems: 3000, maxItems: 3000 };
    await assert.rejects(client.chat.completions.create(ask), /took longer/);
    await assert.rejects(async () => { for await (const _ of await client.chat.completions.create({ ...ask, stream: true })); }, /took longer/);
    await assert.rejects(client.chat.completions.stream(ask).finalChatCompletion(), /took longer/);
    await assert.rejects(client.responses.stream({ model: 'm', input: 'A dog', text: { format: { type: 'json_schema', name: 'long', schema: numbers } } }).finalResponse(), /took longer/);
    assert.ok(Date.now() - start < 3000);
  },
  async 'openai: embeddings, which are asked for as base64'() {
    const input = ['A dog', 'A cat'];
    const usual = await openai.embeddings.create({ model: 'm', input });
    const floats = await openai.embeddings.create({ model: 'm', input, encoding_format: 'float' });
    assert.equal(usual.data.length, 2);
    assert.ok(usual.data[1].embedding.length > 8);
    usual.data[1].embedding.forEach((x, i) => assert.ok(Math.abs(x - floats.data[1].embedding[i]) < 1e-6));
  },
  async 'openai: functions'() {
    const ask = { model: 'm', messages, tools: [tool], tool_choice: 'required', parallel_tool_calls: false, max_tokens: 200, seed: 2 };
    const call = (await openai.chat.completions.create(ask)).choices[0].message.tool_calls[0];
    checkArguments(JSON.parse(call.function.arguments));
    const streamed = await openai.chat.completions.stream(ask).finalChatCompletion();
    assert.equal(streamed.choices[0].finish_reason, 'tool_calls');
    assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
  },
  async 'openai: a loop with a tool'() {
    let asked = 0;
    const runner = openai.chat.completions.runTools({
      model: 'm', messages, max_tokens: 100, seed: 3, temperature: 0,
      tool_choice: { type: 'function', function: { name: 'weather' } },
      tools: [{ type: 'function', function: { ...tool.function, parse: JSON.parse, function: () => (asked++, '12 degrees') } }],
    });
    await runner.done();
    assert.equal(asked, 1);
  },
  async 'openai: JSON of a schema'() {
    const c = await openai.chat.completions.parse({
      model: 'm', messages, max_tokens: 200, response_format: { type: 'json_schema', json_schema: { name: 'c', schema: city, strict: true } },
    });
    checkArguments(JSON.parse(c.choices[0].message.content));
  },
  async 'openai: log probabilities'() {
    const c = await openai.chat.completions.create({ model: 'm', messages, max_tokens: 3, logprobs: true, top_logprobs: 2 });
    assert.equal(c.choices[0].logprobs.content[0].top_logprobs.length, 2);
  },
  async 'openai: completions'() {
    const c = await openai.completions.create({ model: 'm', prompt: ['a', 'b'], max_tokens: 4 });
    assert.equal(c.choices.length, 2);
  },
  async 'openai: responses'() {
    const r = await openai.responses.create({ model: 'm', input: 'A dog', max_output_tokens: 20, seed: 1 });
    assert.ok(r.output_text.length > 0);
    const last = await openai.responses.stream({ model: 'm', input: 'A dog', max_output_tokens: 20, seed: 1 }).finalResponse();
    assert.equal(last.output_text, r.output_text);
  },
  async 'openai: responses with a function'() {
    const ask = { model: 'm', input: 'Bern?', tools: [{ type: 'function', name: 'weather', parameters: city, strict: true }], tool_choice: 'required', seed: 1 };
    const events = [];
    for await (const e of await openai.responses.create({ ...ask, stream: true })) events.push(e.type);
    assert.ok(events.includes('response.function_call_arguments.done'));
    const item = (await openai.responses.create(ask)).output[0];
    checkArguments(JSON.parse(item.arguments));
  },
  async 'openai: tokens of a response are counted'() {
    const ask = { model: 'm', input: 'A dog' };
    const { input_tokens } = await openai.responses.inputTokens.count(ask);
    assert.equal(input_tokens, (await openai.responses.create({ ...ask, max_output_tokens: 1 })).usage.input_tokens);
  },
  async 'openai: what is refused is asked once'() {
    let n = 0;
    const client = new OpenAI({ baseURL: address + '/v1', apiKey: 'any', fetch: (...a) => (n++, fetch(...a)) });
    await assert.rejects(client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'a '.repeat(1000) }] }),
      (e) => e instanceof OpenAI.BadRequestError && e.code === 'context_length_exceeded' && typeof e.requestID === 'string');
    await assert.rejects(client.get('/nothing'), OpenAI.NotFoundError);
    assert.equal(n, 2);
  },
  async 'openai: an error'() {
    await assert.rejects(openai.chat.completions.create({ model: 'm', messages: [] }), OpenAI.BadRequestError);
    await assert.rejects(openai.models.retrieve('none'), OpenAI.NotFoundError);
  },
  async 'anthropic: messages'() {
    const ask = { model: 'm', max_tokens: 12, temperature: 0, messages };
    const whole = await anthropic.messages.create(ask);
    const last = await anthropic.messages.stream(ask).finalMessage();
    assert.equal(last.content[0].text, whole.content[0].text);
    assert.equal(whole.stop_reason, 'max_tokens');
    assert.equal((await anthropic.messages.countTokens({ model: 'm', messages })).input_tokens,
      whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  },
  async 'anthropic: a tool and its result'() {
    const tools = [{ name: 'weather', description: 'of a city', input_schema: city }];
    const ask = { model: 'm', max_tokens: 200, tools, tool_choice: { type: 'any', disable_parallel_tool_use: true }, messages };
    const use = (await anthropic.messages.stream(ask).finalMessage()).content[0];
    checkArguments(use.input);
    const more = [...messages, { role: 'assistant', content: [use] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: '12 degrees' }] }];
    assert.ok((await anthropic.messages.create({ ...ask, tool_choice: { type: 'auto' }, max_tokens: 8, messages: more })).id);
  },
  async 'anthropic: an error'() {
    await assert.rejects(anthropic.messages.create({ model: 'm', max_tokens: 5, messages: [] }), Anthropic.BadRequestError);
  },
  async 'ollama: list, show, chat, generate'() {
    const model = (await ollama.list()).models[0].name;
    assert.ok((await ollama.show({ model })).model_info);
    const ask = { model, messages, options: { num_predict: 10, temperature: 0 } };
    const whole = await ollama.chat(ask);
    let text = '';
    for await (const part of await ollama.chat({ ...ask, stream: true })) text += part.message.content;
    assert.equal(text, whole.message.content);
    assert.ok((await ollama.generate({ model, prompt: 'A dog', options: { num_predict: 5 } })).response);
  },
  async 'ollama: embeddings, and an error'() {
    const { embeddings } = await ollama.embed({ model: 'm', input: ['A dog', 'A cat'] });
    assert.equal(embeddings.length, 2);
    await assert.rejects(ollama.chat({ model: 'm', messages: [{ role: 'king', content: '' }] }), (e) => e.status_code === 400);
  },
  async 'ollama: a schema, and a result of a tool'() {
    const c = await ollama.chat({ model: 'm', messages, format: city, options: { num_predict: 200 } });
    checkArguments(JSON.parse(c.message.content));
    const more = [...messages, { role: 'assistant', content: '', tool_calls: [{ function: { name: 'weather', arguments: { city: 'Bern', days: 1 } } }] },
      { role: 'tool', content: '12 degrees', tool_name: 'weather' }];
    assert.ok((await ollama.chat({ model: 'm', messages: more, tools: [tool], options: { num_predict: 5 } })).done);
  },
  async 'ai, openai-compatible: text, stream, object'() {
    await askByAi(compatible('m'));
  },
  async 'ai, openai-compatible: a loop with a tool'() {
    await callByAi(compatible('m'));
  },
  async 'ai, openai-compatible: reasoning'() {
    const done = await ai.streamText({ model: compatible('m'), prompt: 'Bern?', maxOutputTokens: 8, ...once,
      providerOptions: { hearth: { chat_template_kwargs: { enable_thinking: true } } } });
    await done.consumeStream();
    assert.ok((await done.reasoningText).length > 0);
  },
  async 'ai, openai-compatible: vectors, completions, errors'() {
    const { embeddings } = await ai.embedMany({ model: compatible.embeddingModel('m'), values: ['A dog', 'A cat'] });
    assert.equal(embeddings.length, 2);
    assert.ok((await ai.generateText({ model: compatible.completionModel('m'), prompt: 'A dog', maxOutputTokens: 5, ...once })).text);
    await assert.rejects(ai.generateText({ model: compatible('m'), prompt: 'a '.repeat(1000), maxRetries: 0 }), (e) => e.statusCode === 400 && /tokens/.test(e.message));
    const parts = [];
    const failing = ai.streamText({ model: createOpenAICompatible({ name: 'late', baseURL: late + '/v1' })('m'), prompt: 'Bern?', maxRetries: 0, onError() {},
      providerOptions: { late: { ignore_eos: true } } });
    for await (const part of failing.fullStream) parts.push(part.type);
    assert.ok(parts.includes('error'));
  },
  async 'ai, openai: text, stream, object'() {
    await askByAi(openaiOfAi('m'));
  },
  async 'ai, openai: a loop with a tool'() {
    await callByAi(openaiOfAi('m'));
  },
  async 'ai, openai: chat, completion, vectors'() {
    await askByAi(openaiOfAi.chat('m'));
    assert.ok((await ai.generateText({ model: openaiOfAi.completion('m'), prompt: 'A dog', maxOutputTokens: 5, ...once })).text);
    assert.equal((await ai.embed({ model: openaiOfAi.embedding('m'), value: 'A dog' })).usage.tokens > 0, true);
  },
};

globalThis.AI_SDK_LOG_WARNINGS = false;
let failed = 0;
const wanted = process.env.HEARTH_CASE ?? '';
for (const [name, run] of Object.entries(cases).filter(([n]) => n.includes(wanted))) {
  current = name;
  try {
    await run();
    console.log('ok   ' + name);
  } catch (e) {
    failed++;
    console.log('FAIL ' + name + ': ' + String(e?.stack ?? e).split('\n').slice(0, 3).join(' | '));
  }
}
if (record) fs.writeFileSync(record, [kept, ...lines].map((l) => JSON.stringify(l) + '\n').join(''));
proxy?.close();
process.exit(failed ? 1 : 0);
