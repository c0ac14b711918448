/* Offsets in the step block (forward/gpu/shader_params.h: HTH_STEP_*). */
const uint STEP_N_TOK = 0, STEP_N_WANT = 1, STEP_N_RUN = 2;
const uint STEP_ROWS = 16, STEP_ROW_WORDS = 4; /* of each row: */
const uint STEP_POSITION = 0, STEP_WANT = 1, STEP_TABLE = 2;
const uint NO_SLOT = ~0u; /* HTH_STEP_NO_SLOT */
