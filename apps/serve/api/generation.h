/* The generation of one request: its fields, its choices and the events of the scheduler. An answer has reasoning, text
 * and function calls, in one choice or several, whole or as a stream. The answer_format writes it. The request is read
 * on the thread where its call runs (serve/large_call.h); everything after generation_start is on the engine thread. */
#ifndef HEARTH_APPS_SERVE_API_GENERATION_H
#define HEARTH_APPS_SERVE_API_GENERATION_H

#include "common/buffer.h"
#include "serve/api/logprobs.h"
#include "serve/api/prompts.h"
#include "serve/api/response_format.h"
#include "serve/api/openai/response_store.h"
#include "serve/endpoints.h"
#include "text/stops.h"

enum { MAX_STOPS = 16, MAX_STOP_SIZE = 256, MAX_CHOICES = 8, MAX_PROMPTS = 64, MAX_BREAKERS = 64 };

typedef struct generation generation;
typedef struct choice choice;

/* Whole answers and streams in the form of one API. Functions of a stream may be NULL: it has no such event. Each
 * sends what it has by generation_send. */
typedef struct answer_format {
    const char *prefix; /* how the answer's id begins */
    void (*begin)(choice *c);
    /* More of a choice, in its last part: n bytes of text or reasoning; the name of a function, or a part of its
     * arguments. */
    void (*part)(choice *c, hearth_answer_kind kind, const char *text, size_t n);
    /* More of the prompt of a choice was evaluated. */
    void (*progress)(choice *c, const hearth_request_progress *progress);
    void (*end_choice)(choice *c);
    void (*end)(generation *g);
    void (*fail)(generation *g);  /* the last event, if there is a problem; NULL: the usual one of its form */
    void (*whole)(generation *g); /* ends the call */
    uint32_t max_token;           /* if the request names none; 0: no limit */
    bool continues;               /* the text goes on where the prompt ends, and has no parts */
} answer_format;

/* The formats of all APIs. Each is defined in the file of its endpoint. */
extern const answer_format openai_chat_format, openai_completion_format, openai_response_format,
    llama_completion_format, anthropic_format, ollama_format;

typedef struct stop_list {
    hth_stop at[MAX_STOPS];
    size_t n;
} stop_list;

typedef struct function_call {
    char id[12]; /* 9 letters and digits, which all templates take */
    char *name;
    buffer arguments;
} function_call;

/* An answer is a sequence of parts: a stretch of text or of reasoning, or a call. */
typedef struct answer_part {
    hearth_answer_kind kind; /* TEXT, REASONING or CALL */
    size_t from, n;          /* bytes of the choice's text or reasoning; from: of its calls */
} answer_part;

/* How the answer ended, with OpenAI's words. */
typedef enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CALLS } finish_reason;

struct choice {
    generation *generation;
    uint32_t index;
    uint64_t id; /* the scheduler's id of the request; 0: it has not begun */
    finish_reason finish;
    hearth_sampler_options sampler;
    hearth_constraint *constraint; /* NULL: all texts are allowed */
    hearth_answer *answer;
    buffer text, reasoning;
    size_t n_sure; /* bytes of the text with which no stop string begins: a stream has them */
    function_call *calls;
    size_t n_call, call_capacity;
    answer_part *parts;
    size_t n_part, part_capacity;
    logprobs probs;
    int32_t *ids; /* [n_generated], if the generation keeps them */
    size_t n_told, id_capacity; /* n_told: of ids, as the client was told */
    const hth_stop *stop; /* the stop string that was found; NULL: none */
    bool is_stopped, has_progress;
    bool is_late; /* stopped at the end of a line (max_line_ns) */
    bool drops_text, has_dropped; /* the beginning of a truncated call is not sent as text; some was dropped */
    uint32_t n_evaluated;         /* prompt tokens that were reported to a stream, if has_progress */
    hearth_draft_stats draft;
    size_t i_prompt, n_generated, n_reasoning, n_cached; /* n_reasoning: of the generated tokens */
};

struct generation {
    generation *next; /* in the list of the model */
    served_model *served;
    call *call;
    const answer_format *format;
    char name[48];     /* the answer's id, for clients */
    int64_t created;
    /* The request. */
    stop_list stops;
    hearth_sampler_options sampler;
    const char *breakers[MAX_BREAKERS]; /* sequence breakers of DRY */
    hearth_logit_bias *biases;    /* sampler.bias points to them */
    uint32_t max_token, n_choice; /* n_choice: choices for each prompt */
    bool ignore_end, is_stream, include_usage, echo;
    bool prompt_only; /* no token is wanted: the prompt is evaluated for those that follow, or scored */
    bool fills_gap;   /* the text belongs between two others: clients name a sampler for that, which is left out */
    uint64_t max_line_ns; /* a line that ends later, counted from the first token, is the last one; 0: none is too late */
    bool goes_on;     /* the answer goes on with a text: it may begin with a space */
    bool each_progress, each_timings; /* a stream tells of the prompt; each part has the timings so far */
    bool is_plain;                    /* Ollama's API writes a text, not a message */
    enum { KEEP_AS_IT_WAS, KEEP_LOADED, KEEP_UNTIL_IDLE } keep; /* the model: Ollama's keep_alive */
    wanted_constraint constraint;
    logprobs probs;  /* holds only the options; a choice has the values */
    char *functions; /* JSON; NULL: none may be called */
    char *called;    /* functions of the constraint; NULL: the constraint is not about calls */
    bool one_call, in_reasoning;
    bool keeps_ids;  /* the ids of generated tokens are kept */
    bool drops_turns; /* a conversation that is too long loses its oldest turns */
    bool stores;     /* the response is kept, with: */
    item_list items; /* items of the conversation in the Responses API */
    prompt_list prompts;
    /* The answer. */
    struct compiling *compiling; /* the constraint is compiled, and there are no choices yet; NULL: it is not */
    choice *choices;
    struct prompt_scores *scores; /* NULL: none, or they are computed */
    size_t n_begun, n_over;       /* choices that the scheduler has got; choices that have ended */
    bool is_streaming, is_broken;
    problem problem; /* status 0: none so far */
    uint64_t begin_ns, first_ns, last_ns;
    size_t n_opened;  /* parts that formats which number them have begun */
    uint32_t n_event; /* events that such formats have sent */
};

/* Reads the body of a call: *f is its document, *p says of all that follows what is wrong. NULL: the call was ended. */
generation *generation_make(served_model *served, call *c, const answer_format *format, fields *f,
                            problem *p);
/* Reads the fields that all APIs of OpenAI share: sampling, length, stop strings, stream. */
bool generation_read(generation *g, fields *f);
/* Parts of it, for other APIs: temperature to penalties; stop strings of a field; a field of the number of tokens at
 * most, where 0 wants none, and what is absent changes nothing. */
void sampling_read(generation *g, fields *f);
/* The members of an object that these fields would set. */
void sampling_write(json *j, const hearth_sampler_options *o);
void stops_read(generation *g, fields *f, const char *name);
bool length_read(generation *g, fields *f, const char *name);
/* Reads that number by any of the names that clients of OpenAI and llama.cpp give it. */
bool lengths_read(generation *g, fields *f);
/* return_progress and timings_per_token of llama.cpp's server. */
bool progress_read(generation *g, fields *f);
/* On the engine thread: whether one more request may be there, a generation, a task or a large call. */
bool generation_has_room(const served_model *served, problem *p);
/* Asks the scheduler for all choices of all prompts, when the worker has compiled the constraint, if there is one. */
void generation_start(generation *g);
/* On the engine thread: whether the model leaves, as the request wants it. */
void generation_keep_model(const generation *g);
/* Frees one that was not started, whose call has ended. */
void generation_free(generation *g);
/* Ends the call by what is wrong with it. */
void generation_refuse(generation *g, const problem *p);

/* Sends an event of the stream: a line of JSON with "data: " before it, and with "event: NAME" if the name is not
 * NULL. generation_send_line: the line alone. Both free it. */
void generation_send(generation *g, const char *name, json_line *l);
void generation_send_line(generation *g, json_line *l);

/* Choices of all prompts; 0: it was not started. */
size_t generation_count(const generation *g);
size_t generation_n_prompt(const generation *g);
size_t generation_n_generated(const generation *g);
size_t generation_n_cached(const generation *g);
size_t generation_n_reasoning(const generation *g);
/* The members "timings", with the names of llama.cpp's server, and "seed". */
void generation_write_timings(json *j, const generation *g);
/* Whether they stand in a part that is not the last. */
bool generation_tells_timings(const generation *g);
/* "stop" */
const char *finish_word(finish_reason f);

uint64_t random_number(void);

/* Between two steps: begins generations whose constraint is there, and choices that share a prompt with others; cancels
 * the requests of clients that are gone, and pauses those of clients that do not read; ends those that take longer than
 * allowed. Returns when the next one does (UINT64_MAX: none). */
uint64_t generations_tend(served_model *served);
/* Whether that has something to do at once, though no request may be left: choices may begin, what is broken ends. */
bool generations_go_on(const served_model *served);
void generations_cancel_all(served_model *served);

#endif
