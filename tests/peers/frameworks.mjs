// Conversations of several turns with a tool and a schema, by the frameworks of npm that agents are made of.
//
//     node frameworks.mjs NAME ADDRESS FOLDER
//
// NAME is one of the cases below, FOLDER that in whose node_modules they are. The model calls weather twice, then answers;
// an answer of a schema is one of two words, as it is drawn at random. Status 0: nothing failed.
import { pathToFileURL } from 'node:url';
import path from 'node:path';
import fs from 'node:fs';
import assert from 'node:assert/strict';

const [name, address, folder] = process.argv.slice(2);

// What an import of that name is, from a file in the folder; some packages have no other form.
async function load(packageName) {
  const file = path.join(folder, 'load.mjs');
  if (!fs.existsSync(file)) fs.writeFileSync(file, 'export const load = (name) => import(name);\n');
  return (await import(pathToFileURL(file))).load(packageName);
}

const { z } = await load('zod');
const system = 'You are a helper who knows the weather of the cities of Switzerland.';
const ask = 'How is the weather in Bern, and how will it be tomorrow?';
const more = 'And on the day after that, what do you think of it?';
const description = 'The weather of a city, for a number of days';
const place = z.object({ city: z.string().describe('The name of a city'), days: z.number().int().describe('How many days') });
const verdict = z.object({ verdict: z.enum(['good', 'bad']).describe('Of the weather as a whole') });
const weather = async () => 'It is cold, and there will be snow in the evening.';
const once = { maxRetries: 0 };

function checkVerdict(value) {
  assert.ok(['good', 'bad'].includes(value.verdict), JSON.stringify(value));
}

// ---- AI SDK ----------------------------------------------------------------------------------------------------------

// What a model writes of a call comes back with the next request, also if max_tokens cut it.
async function afterACut(ai, usual, messages) {
  const cut = await ai.generateText({ ...usual, messages, maxOutputTokens: 5, stopWhen: ai.stepCountIs(1) });
  assert.equal(cut.finishReason, 'length');
  const [call] = cut.toolCalls;
  const output = { type: 'error-text', value: 'These arguments end too early.' };
  const results = call && !cut.response.messages.some((m) => m.role === 'tool')
    ? [{ role: 'tool', content: [{ type: 'tool-result', toolCallId: call.toolCallId, toolName: call.toolName, output }] }] : [];
  return [...messages, ...cut.response.messages, ...results, { role: 'user', content: more }];
}

async function byAi(model, options = {}) {
  const ai = await load('ai');
  const providerOptions = { anthropic: { structuredOutputMode: 'outputFormat' }, ...options }; // its own way is a function more
  const tools = { weather: ai.tool({ description, inputSchema: place, execute: weather }) };
  const usual = { model, system, tools, providerOptions, stopWhen: ai.stepCountIs(5), maxOutputTokens: 100, ...once };
  let messages = [{ role: 'user', content: ask }];
  for (const next of [more, ask]) {
    const { response, text } = await ai.generateText({ ...usual, messages });
    assert.equal(text, 'Hello there!');
    messages = [...messages, ...response.messages, { role: 'user', content: next }];
  }
  const stream = ai.streamText({ ...usual, messages, onError({ error }) { throw error; } });
  assert.equal(await stream.text, 'Hello there!');
  messages = [...messages, ...(await stream.response).messages, { role: 'user', content: more }];
  assert.equal((await ai.generateText({ ...usual, messages: await afterACut(ai, usual, messages.slice(0, 1)) })).text, 'Hello there!');
  const { output } = await ai.generateText({ ...usual, tools: undefined, messages, output: ai.Output.object({ schema: verdict }) });
  checkVerdict(output);
  const both = await ai.generateText({ ...usual, messages: messages.slice(0, 1), output: ai.Output.object({ schema: verdict }) });
  assert.equal(both.steps[0].toolCalls[0].toolName, 'weather');
  checkVerdict(both.output);
  return both.providerMetadata;
}

// The server has the turns; only the new question is sent.
async function byResponses(model) {
  const { openai } = await byAi(model);
  const ai = await load('ai');
  const providerOptions = { openai: { previousResponseId: openai.responseId } };
  assert.equal((await ai.generateText({ model, system, prompt: more, providerOptions, ...once })).text, 'Hello there!');
  await byAi(model, { openai: { store: false } });
}

// ---- OpenAI Agents ---------------------------------------------------------------------------------------------------

async function byAgents(api) {
  const { Agent, run, tool, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled } = await load('@openai/agents');
  const { default: OpenAI } = await load('openai');
  setTracingDisabled(true);
  setOpenAIAPI(api);
  setDefaultOpenAIClient(new OpenAI({ baseURL: address + '/v1', apiKey: 'any', ...once }));
  const tools = [tool({ name: 'weather', description, parameters: place, execute: weather })];
  const agent = new Agent({ name: 'helper', instructions: system, model: 'caller', tools });
  const first = await run(agent, ask, { maxTurns: 5 });
  assert.equal(first.finalOutput, 'Hello there!');
  const stream = await run(agent, [...first.history, { role: 'user', content: more }], { maxTurns: 5, stream: true });
  await stream.completed;
  assert.equal(stream.finalOutput, 'Hello there!');
  if (api === 'responses') assert.equal((await run(agent, more, { maxTurns: 5, previousResponseId: stream.lastResponseId })).finalOutput, 'Hello there!');
  checkVerdict((await run(new Agent({ name: 'judge', instructions: system, model: 'caller', tools, outputType: verdict }), ask, { maxTurns: 5 })).finalOutput);
}

// ---- LangChain -------------------------------------------------------------------------------------------------------

async function chatOpenAI(more) {
  const { ChatOpenAI } = await load('@langchain/openai');
  return (options) => new ChatOpenAI({ ...options, ...more, configuration: { baseURL: address + '/v1' } });
}

async function byLangChain(make) {
  const [model, cutModel] = [100, 5].map((maxTokens) => make({ model: 'caller', apiKey: 'any', maxTokens, ...once }));
  const { tool, createAgent } = await load('langchain');
  const { HumanMessage, SystemMessage, ToolMessage } = await load('@langchain/core/messages');
  const tools = [tool(weather, { name: 'weather', description, schema: place })];
  const agent = createAgent({ model, tools, systemPrompt: system });
  let { messages } = await agent.invoke({ messages: [new HumanMessage(ask)] });
  assert.equal(messages.at(-1).text, 'Hello there!');
  ({ messages } = await agent.invoke({ messages: [...messages, new HumanMessage(more)] }));
  assert.equal(messages.at(-1).text, 'Hello there!');
  const cut = await cutModel.bindTools(tools).invoke([new SystemMessage(system), new HumanMessage(ask)]);
  const results = [...cut.tool_calls, ...cut.invalid_tool_calls].map(({ id }) => new ToolMessage({ tool_call_id: id, content: 'These arguments end too early.' }));
  ({ messages } = await agent.invoke({ messages: [new HumanMessage(ask), cut, ...results, new HumanMessage(more)] }));
  assert.equal(messages.at(-1).text, 'Hello there!');
  let text = '';
  for await (const part of await model.bindTools(tools).stream([...messages, new SystemMessage(system), new HumanMessage(ask)])) text += part.text;
  assert.equal(text, 'Hello there!');
  checkVerdict(await model.withStructuredOutput(verdict).invoke([...messages, new HumanMessage(more)]));
}

// ---- LlamaIndex ------------------------------------------------------------------------------------------------------

async function byLlamaIndex() {
  const { OpenAI } = await load('@llamaindex/openai');
  const { tool, LLMAgent } = await load('llamaindex');
  const llm = new OpenAI({ model: 'caller', apiKey: 'any', baseURL: address + '/v1', supportToolCall: true, ...once });
  const tools = [tool({ name: 'weather', description, parameters: place, execute: weather })];
  const agent = new LLMAgent({ llm, tools, systemPrompt: system });
  assert.equal((await agent.chat({ message: ask })).message.content, 'Hello there!');
  assert.equal((await agent.chat({ message: more })).message.content, 'Hello there!');
  let text = '';
  for await (const part of await agent.chat({ message: ask, stream: true })) text += part.delta;
  assert.equal(text, 'Hello there!');
}

const cases = {
  'AI SDK, openai-compatible': async () => byAi((await load('@ai-sdk/openai-compatible')).createOpenAICompatible(
    { name: 'hearth', baseURL: address + '/v1', apiKey: 'any', supportsStructuredOutputs: true })('caller')),
  'AI SDK, openai': async () => byResponses((await load('@ai-sdk/openai')).createOpenAI({ baseURL: address + '/v1', apiKey: 'any' })('caller')),
  'AI SDK, anthropic': async () => byAi((await load('@ai-sdk/anthropic')).createAnthropic({ baseURL: address + '/v1', apiKey: 'any' })('caller')),
  'OpenAI Agents, chat': () => byAgents('chat_completions'),
  'OpenAI Agents, responses': () => byAgents('responses'),
  'LangChain, openai': async () => byLangChain(await chatOpenAI({})),
  'LangChain, responses': async () => byLangChain(await chatOpenAI({ useResponsesApi: true })),
  'LangChain, anthropic': async () => {
    const { ChatAnthropic } = await load('@langchain/anthropic');
    return byLangChain((options) => new ChatAnthropic({ ...options, anthropicApiUrl: address }));
  },
  'LlamaIndex': byLlamaIndex,
};

globalThis.AI_SDK_LOG_WARNINGS = false;
await cases[name]();
process.exit(0);
