/* Describes the placement of a model for the start line, for tables and for --json. */
#include "common/placement_info.h"
#include "common/options/field_names.h"

#include "base/format_bytes.h"
#include "base/clock.h"

#include <stdio.h>

static bool is_whole(const hearth_model_info *info)
{
    return info->gpu_n_layer == info->n_layer && info->gpu_head && info->gpu_neuron_share >= 1.0;
}

placed placement_text(const hearth_model_info *info)
{
    placed p = {"on the CPU"};
    char neurons[64] = "";
    if (!info->gpu) return p;
    if (info->gpu_neuron_share < 1.0)
        snprintf(neurons, sizeof neurons, " with %.0f %% of their %s", 100.0 * info->gpu_neuron_share,
                 info->gpu_divides_experts ? "experts" : "neurons");
    snprintf(p.text, sizeof p.text, "%u of %u layers%s%s%s on %s (%s, %sthe CPU's bits%s%s), %s the CPU",
             info->gpu_n_layer, info->n_layer, neurons, info->gpu_head ? " and the head" : "",
             info->gpu_host_kv ? ", KV cache in host memory," : "", info->gpu,
             hth_format_bytes(info->gpu_bytes).text, info->gpu_bit_exact ? "" : "not ",
             info->gpu_bit_exact ? "" : ": ", info->gpu_bit_exact_reason,
             is_whole(info) ? "beside" : "the rest on");
    return p;
}

void json_placement(json *j, const hearth_model_info *info)
{
    json_open(j, "gpu", '{');
    if (info->gpu) json_word(j, "device", info->gpu);
    json_uint(j, "layers", info->gpu_n_layer);
    json_uint(j, "layers_in_all", info->n_layer);
    if (info->gpu) {
        json_float(j, "neurons", info->gpu_neuron_share, 6);
        json_float(j, "product_share", info->gpu_product_share, 6);
        json_bool(j, "head", info->gpu_head);
        json_bool(j, "host_kv", info->gpu_host_kv);
        json_uint(j, "bytes", info->gpu_bytes);
        json_bool(j, "simulated", info->gpu_simulated);
    }
    json_bool(j, "cpu_bits", info->gpu_bit_exact);
    if (info->gpu_bit_exact_reason[0]) json_word(j, "cpu_bits_note", info->gpu_bit_exact_reason);
    if (info->gpu_predicted_tps > 0.0)
        json_float(j, "predicted_tokens_per_second", info->gpu_predicted_tps, 6);
    if (info->gpu_note[0]) json_word(j, "note", with_options(info->gpu_note).text);
    json_close(j, '}');
}

experts_there experts_text(const hearth_model *model)
{
    hearth_expert_stats s = {.size = sizeof s};
    experts_there there = {""};
    if (!hearth_model_get_expert_stats(model, &s) || s.n_chosen == 0) return there;
    snprintf(there.text, sizeof there.text,
             "%.1f %% of %llu chosen ones were there, %llu were uploaded (%s); %llu waits for the CPU, %llu for nothing",
             100.0 * (double)s.n_on_device / (double)s.n_chosen, (unsigned long long)s.n_chosen,
             (unsigned long long)s.n_upload, hth_format_bytes(s.upload_bytes).text, (unsigned long long)s.n_wait,
             (unsigned long long)s.n_wait_empty);
    return there;
}

hearth_expert_stats experts_since(const hearth_model *model, const hearth_expert_stats *before)
{
    hearth_expert_stats s = {.size = sizeof s};
    if (!hearth_model_get_expert_stats(model, &s)) return (hearth_expert_stats){0};
    s.n_chosen -= before->n_chosen, s.n_on_device -= before->n_on_device;
    s.n_upload -= before->n_upload, s.upload_bytes -= before->upload_bytes;
    s.n_wait -= before->n_wait, s.n_wait_empty -= before->n_wait_empty;
    return s;
}

void json_expert_stats(json *j, const char *key, const hearth_expert_stats *s)
{
    json_open(j, key, '{');
    json_uint(j, "chosen", s->n_chosen);
    json_uint(j, "on_device", s->n_on_device);
    json_uint(j, "uploads", s->n_upload);
    json_uint(j, "upload_bytes", s->upload_bytes);
    json_uint(j, "waits", s->n_wait);
    json_uint(j, "waits_for_nothing", s->n_wait_empty);
    json_close(j, '}');
}

void json_experts(json *j, const hearth_model *model)
{
    hearth_expert_stats s = {.size = sizeof s};
    if (hearth_model_get_expert_stats(model, &s)) json_expert_stats(j, "experts", &s);
}

timestamp timestamp_now(const hearth_model *model)
{
    hearth_model_info info = model_info(model);
    return (timestamp){(double)hth_clock_ns() * 1e-9, info.gpu_sim_seconds};
}

timestamp timestamp_since(const hearth_model *model, timestamp start)
{
    timestamp end = timestamp_now(model);
    bool clock = start.sim > 0.0 && end.sim > 0.0;
    return (timestamp){end.wall - start.wall, clock ? end.sim - start.sim : -1.0};
}
