/* Messages of the library name fields; in those of the program its options stand for them, and nothing else changes. */
#include "common/options/field_names.h"
#include "support/test.h"

TEST(options_stand_for_fields)
{
    static const char *const cases[][2] = {
        {"raise n_ctx", "raise -c"},
        {"a smaller n_ctx or n_batch takes less, gpu.device none does without it",
         "a smaller -c or --batch takes less, --gpu none does without it"},
        {"the least is gpu.vram 5M; gpu.vram, n_ctx", "the least is --vram 5M; --vram, -c"},
        {"hearth_model_options.ram HEARTH_RAM_AUTO or hearth_model_options.io mmap", "--ram auto or --io mmap"},
        {"leave hearth_model_options.ram out.", "leave --ram out."},
        {"open it with a larger gpu.n_ctx, or close", "open it with a larger -c, or close"},
        {"ask for hearth_session_options.kv F16", "ask for --kv f16"},
        {"without gpu.bit_exact it computes", "without --gpu-strict it computes"},
        {"hearth pack without for_storage", "hearth pack without --for-storage"},
        {"(n_batch)", "(--batch)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_TEXT(with_options(cases[i][0]).text, cases[i][1]);
}

TEST(names_of_files_and_other_words_stay)
{
    static const char *const same[] = {"",
                                       "n_ctx.gguf",
                                       "/models/n_ctx/a",
                                       "my-n_ctx",
                                       "n_ctx_train",
                                       "gpu.n_ctx_max",
                                       "llama.n_ctx",
                                       "n_batches",
                                       "gpu.devices",
                                       "hearth_model_options.ramp"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) CHECK_TEXT(with_options(same[i]).text, same[i]);
}

TEST(long_messages_are_cut)
{
    char message[2000], out[10];
    memset(message, 'x', sizeof message);
    message[sizeof message - 1] = '\0';
    CHECK_INT(strlen(with_options(message).text), sizeof(option_text) - 1);
    for (size_t size = 1; size <= sizeof out; size++) {
        memset(out, 'y', sizeof out);
        (void)name_options(out, size, "x n_batch y");
        CHECK_INT(strlen(out), size - 1);
        CHECK(strncmp(out, "x --batch ", size - 1) == 0);
    }
}
