// Asks a server by the clients that people use: openai, @anthropic-ai/sdk and ollama of npm. The first argument is its
// address, the second the folder in whose node_modules they are. Prints a line for each case; peers.py calls it.
import { createRequire } from 'node:module';
import assert from 'node:assert/strict';

const [address, folder] = process.argv.slice(2);
const require = createRequire(folder + '/');
const OpenAI = require('openai').default ?? require('openai');
const Anthropic = require('@anthropic-ai/sdk').default ?? require('@anthropic-ai/sdk');
const { Ollama } = require('ollama');

const openai = new OpenAI({ baseURL: address + '/v1', apiKey: 'any', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: address, apiKey: 'any', maxRetries: 0 });
const ollama = new Ollama({ host: address });

const messages = [{ role: 'user', content: 'How warm is it in Bern?' }];
const city = {
  type: 'object',
  properties: { city: { enum: ['Bern', 'Paris'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const tool = { type: 'function', function: { name: 'weather', description: 'of a city', parameters: city } };
const checkArguments = (a) => assert.ok(['Bern', 'Paris'].includes(a.city) && a.days >= 1 && a.days <= 9);

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
  async 'ollama: a schema, and a result of a tool'() {
    const c = await ollama.chat({ model: 'm', messages, format: city, options: { num_predict: 200 } });
    checkArguments(JSON.parse(c.message.content));
    const more = [...messages, { role: 'assistant', content: '', tool_calls: [{ function: { name: 'weather', arguments: { city: 'Bern', days: 1 } } }] },
      { role: 'tool', content: '12 degrees', tool_name: 'weather' }];
    assert.ok((await ollama.chat({ model: 'm', messages: more, tools: [tool], options: { num_predict: 5 } })).done);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log('ok   ' + name);
  } catch (e) {
    failed++;
    console.log('FAIL ' + name + ': ' + String(e?.stack ?? e).split('\n').slice(0, 3).join(' | '));
  }
}
process.exit(failed ? 1 : 0);
