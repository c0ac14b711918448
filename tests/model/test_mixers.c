/* Keys and tensors of recurrent layers and of latent attention that contradict each other are refused with their name. */
#include "engine/engine.h"
#include "model/program.h"
#include "support/models/tiny_case.h"
#include "support/test.h"

#define Q "qwen35."

static void expect_key(const char *key, uint32_t value, hearth_status status, const char *text)
{
    tiny_become(&tiny, "qwen35");
    tiny_set_u32(&tiny, key, value);
    tiny_expect_refused(status, key, text);
}

TEST(sizes_of_states_are_held_to_their_range)
{
    static const struct {
        const char *key;
        uint32_t value;
        hearth_status status;
        const char *text;
    } cases[] = {{Q "ssm.conv_kernel", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to 64"},
                 {Q "ssm.conv_kernel", 65, HEARTH_ERROR_FORMAT, "allowed are 1 to 64"},
                 {Q "ssm.time_step_rank", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {Q "ssm.time_step_rank", 1u << 31, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {Q "ssm.group_count", 3, HEARTH_ERROR_UNSUPPORTED, "does not divide ssm.time_step_rank"},
                 {Q "ssm.group_count", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {Q "ssm.state_size", 8, HEARTH_ERROR_UNSUPPORTED, "multiples of 16"},
                 {Q "ssm.state_size", 1u << 31, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {Q "ssm.inner_size", 48, HEARTH_ERROR_UNSUPPORTED, "ssm.time_step_rank times ssm.state_size"},
                 {Q "full_attention_interval", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_key(cases[i].key, cases[i].value, cases[i].status, cases[i].text);
    tiny_become(&tiny, "lfm2");
    tiny_set_u32(&tiny, "lfm2.shortconv.l_cache", 0);
    tiny_expect_format_error("lfm2.shortconv.l_cache", "allowed are 1 to 64");
    tiny_become(&tiny, "lfm2");
    tiny_drop_key(&tiny, "lfm2.shortconv.l_cache");
    tiny_expect_format_error("lfm2.shortconv.l_cache", "missing");
}

TEST(kinds_of_layers_that_contradict_the_tensors_are_refused)
{
    static const uint32_t both[] = {1, 1}, swapped[] = {TINY_HEADS_KV, 0}, none[] = {0, 0};
    tiny_become(&tiny, "qwen35");
    tiny_set_u32(&tiny, Q "full_attention_interval", 1024);
    tiny_expect_format_error("'blk.1.attn_qkv.weight'", "missing");
    tiny_become(&tiny, "qwen35");
    tiny_set_array(&tiny, Q "attention.recurrent_layers", (const uint32_t[]){0, 1}, 2);
    tiny_expect_format_error("'blk.0.attn_qkv.weight'", "[32, 96]"); /* that of queries, keys and values */
    tiny_become(&tiny, "qwen35");
    tiny_set_array(&tiny, Q "attention.recurrent_layers", (const uint32_t[]){1, 0, 1}, 3);
    tiny_expect_format_error(Q "attention.recurrent_layers", "one for each layer");
    tiny_become(&tiny, "lfm2");
    tiny_set_array(&tiny, "lfm2.attention.head_count_kv", both, 2);
    tiny_expect_format_error("'blk.0.attn_q.weight'", "missing");
    tiny_become(&tiny, "lfm2");
    tiny_set_array(&tiny, "lfm2.attention.head_count_kv", swapped, 2);
    tiny_expect_format_error("'blk.0.attn_q.weight'", "missing");
    tiny_become(&tiny, "lfm2");
    tiny_set_array(&tiny, "lfm2.attention.head_count_kv", none, 2);
    tiny_expect_format_error("'blk.1.shortconv.conv.weight'", "missing");
}

/* ---- state spaces ------------------------------------------------------------------------------------- */

static void expect_ssm_key(const char *architecture, const char *key, uint32_t value, hearth_status status, const char *text)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", architecture, key);
    tiny_become(&tiny, architecture);
    tiny_set_u32(&tiny, full, value);
    tiny_expect_refused(status, full, text);
}

TEST(sizes_of_state_spaces_are_held_to_their_range_and_divide)
{
    static const struct {
        const char *architecture, *key;
        uint32_t value;
        hearth_status status;
        const char *text;
    } cases[] = {{"mamba2", "ssm.conv_kernel", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to 64"},
                 {"jamba", "ssm.conv_kernel", 65, HEARTH_ERROR_FORMAT, "allowed are 1 to 64"},
                 {"mamba2", "ssm.inner_size", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"jamba", "ssm.inner_size", 1u << 31, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"mamba2", "ssm.inner_size", 78, HEARTH_ERROR_UNSUPPORTED, "no multiple of mamba2.ssm.time_step_rank"},
                 {"plamo2", "ssm.inner_size", 78, HEARTH_ERROR_UNSUPPORTED, "no multiple of plamo2.ssm.time_step_rank"},
                 {"mamba2", "ssm.state_size", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"falcon-h1", "ssm.state_size", 1u << 31, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"mamba2", "ssm.time_step_rank", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"jamba", "ssm.time_step_rank", 1u << 31, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"falcon-h1", "ssm.group_count", 0, HEARTH_ERROR_FORMAT, "allowed are 1 to"},
                 {"plamo2", "ssm.group_count", 1, HEARTH_ERROR_UNSUPPORTED, "not supported"},
                 {"nemotron_h", "moe_latent_size", 8, HEARTH_ERROR_UNSUPPORTED, "not supported"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ssm_key(cases[i].architecture, cases[i].key, cases[i].value, cases[i].status, cases[i].text);
    tiny_become(&tiny, "mamba2");
    tiny_set_u32(&tiny, "mamba2.ssm.group_count", 3);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "mamba2.ssm.time_step_rank is 4", "no multiple of mamba2.ssm.group_count");
    static const char *const needed[] = {"conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"};
    for (int i = 0; i < 5; i++) {
        char full[64];
        snprintf(full, sizeof full, "nemotron_h.ssm.%s", needed[i]);
        tiny_become(&tiny, "nemotron_h");
        tiny_drop_key(&tiny, full);
        tiny_expect_format_error(full, "missing");
    }
}

/* Which parts a layer has follows from counts of heads and widths of networks. */
TEST(parts_of_layers_that_contradict_the_tensors_are_refused)
{
    tiny_become(&tiny, "nemotron_h");
    tiny_set_array(&tiny, "nemotron_h.feed_forward_length", (const uint32_t[]){TINY_D_FF, TINY_D_FF}, 2);
    tiny_expect_format_error("'blk.0.ffn_up.weight'", "missing");
    tiny_become(&tiny, "nemotron_h");
    tiny_set_array(&tiny, "nemotron_h.feed_forward_length", (const uint32_t[]){0, 0}, 2);
    tiny_expect_format_error("'blk.1.ssm_conv1d.weight'", "missing");
    tiny_become(&tiny, "nemotron_h");
    tiny_set_array(&tiny, "nemotron_h.attention.head_count_kv", (const uint32_t[]){TINY_HEADS_KV, 0}, 2);
    tiny_expect_format_error("'blk.0.attn_q.weight'", "missing");
    tiny_become(&tiny, "nemotron_h");
    tiny_drop_key(&tiny, "nemotron_h.attention.layer_norm_rms_epsilon");
    tiny_expect_format_error("nemotron_h.attention.layer_norm_epsilon", "missing");
    tiny_become(&tiny, "jamba");
    tiny_set_array(&tiny, "jamba.attention.head_count_kv", (const uint32_t[]){0, 0}, 2);
    tiny_expect_format_error("'blk.1.ssm_conv1d.weight'", "missing");
    tiny_become(&tiny, "jamba");
    tiny_set_array(&tiny, "jamba.feed_forward_length", (const uint32_t[]){0, TINY_D_FF}, 2);
    tiny_expect_format_error("jamba.feed_forward_length", "entry 0 is 0");
}

TEST(a_convolution_has_a_row_for_each_channel)
{
    tiny_become(&tiny, "lfm2");
    tiny_find(&tiny, "blk.0.shortconv.conv.weight")->dim[0]++;
    tiny_expect_format_error("'blk.0.shortconv.conv.weight'", "[3, 32]");
    tiny_become(&tiny, "qwen35");
    tiny_find(&tiny, "blk.0.ssm_conv1d.weight")->dim[1]--;
    tiny_expect_format_error("'blk.0.ssm_conv1d.weight'", "[3, 128]");
}

TEST(sizes_of_latent_attention_fit_together)
{
    tiny_become(&tiny, "deepseek2");
    tiny_set_u32(&tiny, "deepseek2.rope.dimension_count", 14);
    tiny_expect_format_error("deepseek2.rope.dimension_count", "key_length_mla");
    tiny_become(&tiny, "deepseek2");
    tiny_drop_key(&tiny, "deepseek2.attention.key_length_mla");
    tiny_expect_format_error("deepseek2.attention.key_length_mla", "missing");
    tiny_become(&tiny, "deepseek2");
    tiny_find(&tiny, "blk.0.attn_k_b.weight")->dim[2]--;
    tiny_expect_format_error("'blk.0.attn_k_b.weight'", "[6, 24");
    tiny_become(&tiny, "deepseek2");
    tiny_find(&tiny, "blk.0.attn_k_b.weight")->gone = true;
    tiny_add_tensor(&tiny, "blk.0.attn_kv_b.weight", 0, 2, 24, 47);
    tiny_expect_format_error("'blk.0.attn_kv_b.weight'", "[24, 48]");
    tiny_become(&tiny, "deepseek2");
    tiny_find(&tiny, "blk.0.attn_k_b.weight")->gone = true;
    tiny_expect_format_error("'blk.0.attn_k_b.weight'", "'blk.0.attn_kv_b.weight'");
    tiny_become(&tiny, "deepseek2");
    tiny_set_f32(&tiny, "deepseek2.rope.scaling.factor", 4.0f); /* without a type: linear */
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "deepseek2.rope.scaling.factor", "yarn only");
}

TEST(sizes_of_compressed_attention_fit_together)
{
    static const uint32_t ratios[] = {4, 64}, few[] = {4};
    static const struct {
        const char *key;
        uint32_t value;
        const char *why;
    } keys[] = {{"attention.output_group_count", 3, "does not divide the 4 heads"},
                {"hyper_connection.count", 9, "allowed are 1 to 8"},
                {"hyper_connection.sinkhorn_iterations", 0, "allowed are 1 to"},
                {"hash_layer_count", 3, "allowed are 0 to 2"},
                {"expert_gating_func", 5, "supported: 1"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[80];
        snprintf(full, sizeof full, "deepseek4.%s", keys[i].key);
        tiny_become(&tiny, "deepseek4");
        tiny_set_u32(&tiny, full, keys[i].value);
        bool unsupported = strcmp(keys[i].key, "expert_gating_func") == 0;
        tiny_expect_refused(unsupported ? HEARTH_ERROR_UNSUPPORTED : HEARTH_ERROR_FORMAT, full, keys[i].why);
    }
    tiny_become(&tiny, "deepseek4");
    tiny_set_array(&tiny, "deepseek4.attention.compress_ratios", ratios, 2);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "deepseek4.attention.compress_ratios", "64 for layer 1");
    tiny_become(&tiny, "deepseek4");
    tiny_set_array(&tiny, "deepseek4.attention.compress_ratios", few, 1);
    tiny_expect_format_error("deepseek4.attention.compress_ratios", "one for each layer");
    tiny_become(&tiny, "deepseek4");
    tiny_find(&tiny, "blk.0.ffn_gate_tid2eid.weight")->type = 0;
    tiny_expect_format_error("'blk.0.ffn_gate_tid2eid.weight'", "expected I32");
    tiny_become(&tiny, "deepseek4");
    tiny_set_f32(&tiny, "deepseek4.swiglu_clamp_exp", -1.0f);
    tiny_expect_format_error("deepseek4.swiglu_clamp_exp", "0 to 1e+06");
    tiny_become(&tiny, "deepseek4");
    tiny_find(&tiny, "blk.1.hc_ffn_fn.weight")->dim[0]--;
    tiny_expect_format_error("'blk.1.hc_ffn_fn.weight'", "[96, 15");
}

/* Nothing has a place for what such a layer would compute of a joined tensor's other rows. */
TEST(a_layer_that_shares_a_cache_computes_no_keys_of_its_own)
{
    hearth_model *model = NULL;
    hearth_error error;
    tiny_become(&tiny, "gemma4");
    tiny_tensor *q = tiny_find(&tiny, "blk.1.attn_q.weight");
    snprintf(q->name, sizeof q->name, "blk.1.attn_qkv.weight");
    q->dim[1] += 2 * tiny_find(&tiny, "blk.0.attn_k.weight")->dim[1];
    if (CHECK_INT(tiny_open(&model, &error), HEARTH_OK)) {
        const hth_program *p = model->model->program;
        const hth_op *op = &p->ops[p->first_of_layer[1]];
        while (op->kind != HTH_OP_PRODUCT) op++;
        CHECK_INT(op->product.n, 1);
        CHECK(op->product.matrix[0] == &model->model->layers[1].attn.q);
    }
    tiny_close(model);
}

TEST(layers_share_the_cache_of_layers_of_their_kind)
{
    tiny_become(&tiny, "gemma4");
    tiny_set_u32(&tiny, "gemma4.attention.shared_kv_layers", TINY_LAYERS);
    tiny_expect_format_error("gemma4.attention.shared_kv_layers", "allowed are 0 to 1");
    tiny_become(&tiny, "gemma4");
    tiny_set_u32(&tiny, "gemma4.attention.sliding_window", 40);
    tiny_set_array(&tiny, "gemma4.attention.sliding_window_pattern", (const uint32_t[]){0, 1}, 2);
    tiny_expect_format_error("gemma4.attention.shared_kv_layers", "whose window or heads differ");
    tiny_become(&tiny, "gemma4");
    tiny_set_u32(&tiny, "gemma4.attention.value_length_swa", 4);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "gemma4.attention.value_length_swa", "different lengths");
    tiny_become(&tiny, "gemma4");
    tiny_set_u32(&tiny, "gemma4.rope.dimension_count_swa", 7);
    tiny_expect_format_error("gemma4.rope.dimension_count_swa", "even");
}
