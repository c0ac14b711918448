/* The runs of tokens of one sequence in the step block (forward/gpu/shader_params.h: HTH_RUN_*). */
const uint RUN_FIRST = 0, RUN_N_TOK = 1, RUN_POSITION = 2, RUN_STEP_FROM = 3, RUN_STEP_TO = 4;
const uint RUN_CHUNK_FROM = 5, RUN_CHUNK_TO = 6, RUN_WORDS = 8;

uint run_word(uint word) { return step_words[runs_at + gl_WorkGroupID.y * RUN_WORDS + word]; }
