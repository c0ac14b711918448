// What bench/gpu_counts.py runs of llama.cpp: a prompt several times, or tokens one at a time.
//     node gpu_counts.mjs MODEL LAYERS_ON_THE_GPU PROMPT TIMES TOKENS       (in a folder with node-llama-cpp)
import path from "node:path";
import {pathToFileURL} from "node:url";

const entry = path.resolve("node_modules/node-llama-cpp/dist/index.js");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(entry).href);
const [model, layers, nPrompt, times, nToken] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const llama = await getLlama({gpu: "vulkan", build: "never", skipDownload: true, logLevel: LlamaLogLevel.error});
const loaded = await llama.loadModel({modelPath: model, gpuLayers: layers, ignoreMemorySafetyChecks: true});
const context = await loaded.createContext({
    contextSize: 1024, batchSize: 512, flashAttention: true, ignoreMemorySafetyChecks: true});
const sequence = context.getSequence();
const prompt = Array.from({length: nPrompt}, (_, i) => 5 + i % 200);
for (let i = 0; i < times && nPrompt > 0; i++) {
    await sequence.clearHistory();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt);
}
for (let i = 0; i < nToken; i++)
    for await (const _ of sequence.evaluate([7 + i])) break;
process.exit(0);
