/* Shared by the reports of run and bench. */
#include "common/storage_info.h"

bool storage_since(const hearth_model *model, const hearth_storage_stats *before, hearth_storage_stats *s)
{
    if (!hearth_model_get_storage(model, s)) return false;
    s->n_hit -= before->n_hit, s->n_miss -= before->n_miss;
    s->n_guess -= before->n_guess, s->n_guess_used -= before->n_guess_used;
    s->weight_bytes -= before->weight_bytes, s->read_bytes -= before->read_bytes;
    s->n_read -= before->n_read, s->n_repeated -= before->n_repeated;
    s->n_stall -= before->n_stall, s->stall_seconds -= before->stall_seconds;
    s->read_seconds -= before->read_seconds;
    return true;
}

void json_storage(json *j, const char *key, const hearth_storage_stats *s)
{
    json_open(j, key, '{');
    json_uint(j, "cache_bytes", s->cache_bytes);
    json_uint(j, "cache_bytes_max", s->cache_bytes_max);
    json_uint(j, "hits", s->n_hit);
    json_uint(j, "misses", s->n_miss);
    json_uint(j, "guesses", s->n_guess);
    json_uint(j, "guesses_used", s->n_guess_used);
    json_uint(j, "weight_bytes", s->weight_bytes);
    json_uint(j, "read_bytes", s->read_bytes);
    json_uint(j, "reads", s->n_read);
    json_uint(j, "reads_repeated", s->n_repeated);
    json_float(j, "read_seconds", s->read_seconds, 6);
    json_uint(j, "waits", s->n_stall);
    json_float(j, "wait_seconds", s->stall_seconds, 6);
    json_close(j, '}');
}
