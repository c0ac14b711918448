/* One answer that the model writes: from the fields of a request to the events of the scheduler, as text with stop
 * strings, whole or as a stream. What the answer looks like is its endpoint's (generation_format). On the engine
 * thread. */
#ifndef HEARTH_APPS_SERVE_GENERATION_H
#define HEARTH_APPS_SERVE_GENERATION_H

#include "common/buffer.h"
#include "serve/endpoints.h"
#include "serve/logprobs.h"

enum { MAX_STOPS = 16, MAX_STOP_SIZE = 256 };

typedef struct generation generation;

/* Each appends to a line of JSON, which has the members that all answers have; NULL: the stream has no such event. */
typedef struct generation_format {
    const char *prefix, *object, *chunk_object; /* of the id; of the whole answer and of a part of a stream */
    void (*begin)(json *j, generation *g);      /* the first event of a stream */
    void (*part)(json *j, generation *g, const char *text, size_t n); /* a part of the text */
    void (*end)(json *j, generation *g, const char *finish);          /* the last choice */
    void (*whole)(json *j, generation *g, const char *finish);        /* the choices of a whole answer */
    void (*read_logprobs)(fields *f, logprobs *out);
    uint32_t max_token; /* if the request names none; 0: no limit */
    bool continues;     /* the text goes on where the prompt ends: it may begin with a space */
} generation_format;

typedef struct stop_list {
    struct {
        const char *text;
        size_t n;
    } at[MAX_STOPS];
    size_t n;
} stop_list;

struct generation {
    generation *next; /* of the engine's */
    engine *engine;
    call *call;
    const generation_format *format;
    json_in *document; /* which the stop strings are of */
    uint64_t id;       /* of the scheduler */
    char name[48];     /* of the answer, for clients */
    int64_t created;
    stop_list stops;
    hearth_sampler_options sampler;
    hearth_logit_bias *biases; /* of the sampler */
    uint32_t max_token;
    bool ignore_end, is_stream, include_usage;
    hearth_constraint *constraint; /* NULL: all texts are allowed */
    hearth_detokenizer *decoder;
    buffer text;   /* a whole answer; of a stream, what may be the beginning of a stop string */
    size_t n_sure; /* bytes of it before that */
    logprobs probs;
    bool is_stopped, is_broken;
    size_t n_prompt, n_generated, n_cached;
    hearth_draft_stats draft;
    uint64_t begin_ns, first_ns, last_ns;
};

/* Reads what all endpoints share: sampling, length, stop strings, stream. The document is the generation's from now on,
 * also on failure. NULL: the call was ended. */
generation *generation_read(engine *e, call *c, const generation_format *format, json_in *document,
                            fields *f);
/* Asks the scheduler; ids: the prompt, freed by hearth_free in any case. */
void generation_start(generation *g, int32_t *ids, size_t n);
/* Ends the call by what is wrong with it. */
void generation_refuse(generation *g, const problem *p);

/* Between two steps: cancels the requests of clients that are gone, and pauses those of clients that do not read. */
void generations_tend(engine *e);
void generations_cancel_all(engine *e);

#endif
