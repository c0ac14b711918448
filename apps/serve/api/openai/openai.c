/* Members of answers that chat completions and completions share. */
#include "serve/api/openai/openai.h"

bool openai_begin(const generation *g, json_line *l, const char *object)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "id", g->name);
    json_word(&l->j, "object", object);
    json_int(&l->j, "created", g->created);
    json_word(&l->j, "model", g->served->id);
    json_word(&l->j, "system_fingerprint", g->served->digest);
    return true;
}

void openai_write_usage(json *j, const generation *g)
{
    size_t n_prompt = generation_n_prompt(g), n_generated = generation_n_generated(g);
    json_open_compact(j, "usage", '{');
    json_uint(j, "prompt_tokens", n_prompt);
    json_uint(j, "completion_tokens", n_generated);
    json_uint(j, "total_tokens", n_prompt + n_generated);
    json_open_compact(j, "prompt_tokens_details", '{');
    json_uint(j, "cached_tokens", generation_n_cached(g));
    json_close(j, '}');
    json_open_compact(j, "completion_tokens_details", '{');
    json_uint(j, "reasoning_tokens", generation_n_reasoning(g));
    json_close(j, '}');
    json_close(j, '}');
}

void openai_answer(generation *g, const char *object, void (*write)(json *j, choice *c))
{
    json_line l;
    if (openai_begin(g, &l, object)) {
        json_open_compact(&l.j, "choices", '[');
        for (size_t i = 0; i < generation_count(g); i++) write(&l.j, &g->choices[i]);
        json_close(&l.j, ']');
        openai_write_usage(&l.j, g);
        generation_write_timings(&l.j, g);
    }
    call_line(g->call, &l);
}

void openai_end_stream(generation *g, const char *object)
{
    json_line l;
    if (g->include_usage) {
        if (openai_begin(g, &l, object)) {
            json_open_compact(&l.j, "choices", '[');
            json_close(&l.j, ']');
            openai_write_usage(&l.j, g);
            generation_write_timings(&l.j, g);
        }
        generation_send(g, NULL, &l);
    }
    if (!call_send(g->call, "data: [DONE]\n\n", 14)) g->is_broken = true;
}
