/* hub/parts.h: names of files, quantisations and repositories taken apart, and what of a repository is chosen. */
#include "hub/parts.h"
#include "support/test.h"

static const struct {
    const char *path, *stem, *quant; /* stem NULL: no model's file */
    unsigned part, n_part;
} files[] = {
    {"model-Q4_K_M.gguf", "model-Q4_K_M", "Q4_K_M", 1, 1},
    {"a/b.Q8_0.GGUF", "a/b.Q8_0", "Q8_0", 1, 1},
    {"model-UD-Q4_K_XL.gguf", "model-UD-Q4_K_XL", "UD-Q4_K_XL", 1, 1},
    {"model-IQ3_XXS-00002-of-00003.gguf", "model-IQ3_XXS", "IQ3_XXS", 2, 3},
    {"Q2_K/model-00001-of-00002.gguf", "Q2_K/model", "", 1, 2},
    {"Qwen2.5-7B-Instruct-bf16.gguf", "Qwen2.5-7B-Instruct-bf16", "bf16", 1, 1},
    {"Phi-3-mini-4k-instruct-q4.gguf", "Phi-3-mini-4k-instruct-q4", "q4", 1, 1},
    {"model.gguf", "model", "", 1, 1},
    {"model-00004-of-00003.gguf", "model-00004-of-00003", "", 1, 1},
    {"mmproj-model-f16.gguf", NULL, NULL, 0, 0},
    {"a/x.imatrix.gguf", NULL, NULL, 0, 0},
    {"model.bin", NULL, NULL, 0, 0},
    {".gguf", NULL, NULL, 0, 0},
    {"a/.gguf", NULL, NULL, 0, 0},
    {"", NULL, NULL, 0, 0},
};

TEST(file_names_are_taken_apart)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        hub_file_name name;
        bool is_model = hub_parse_file(files[i].path, &name);
        CHECK_INT(is_model, files[i].stem != NULL);
        if (!is_model || !files[i].stem) continue;
        CHECK_TEXT(name.stem, files[i].stem);
        CHECK_TEXT(name.quant, files[i].quant);
        CHECK_INT(name.part, files[i].part);
        CHECK_INT(name.n_part, files[i].n_part);
    }
}

TEST(quantisations_are_whole_words)
{
    CHECK(hub_has_quant("model-Q4_K_M", "q4_k_m"));
    CHECK(hub_has_quant("Q4_K_M/model", "Q4_K_M"));
    CHECK(hub_has_quant("model-UD-Q4_K_XL", "Q4_K_XL"));
    CHECK(!hub_has_quant("model-Q4_K_M", "Q4_K"));
    CHECK(!hub_has_quant("model-IQ4_0", "Q4_0"));
    CHECK(!hub_has_quant("model-Q4_0_4_4", "Q4_0"));
    CHECK(!hub_has_quant("model", ""));
}

static bool is_request(const char *what, const char *repo, const char *want)
{
    hub_request r;
    if (hub_parse_request(what, NULL, &r, NULL) != HEARTH_OK) return false;
    return strcmp(r.repo, repo) == 0 && strcmp(r.want, want) == 0 && strcmp(r.revision, "main") == 0;
}

TEST(requests_are_repositories_and_what_of_them)
{
    CHECK(is_request("org/name", "org/name", ""));
    CHECK(is_request("org/name:Q4_0", "org/name", "Q4_0"));
    CHECK(is_request("hf.co/org/name:q8_0", "org/name", "q8_0"));
    CHECK(is_request("https://huggingface.co/org/name/blob/main/a/b.gguf", "org/name", "a/b.gguf"));
    CHECK(is_request("https://huggingface.co/org/name/resolve/main/b.gguf?download=true", "org/name", "b.gguf"));
    CHECK(is_request("https://huggingface.co/org/name/tree/main", "org/name", ""));
    CHECK(!is_request("https://huggingface.co/org/name/tree/main/folder", "org/name", ""));
    CHECK(!is_request("https://huggingface.co/org/name/discussions/1", "org/name", ""));
    CHECK(!is_request("https://example.com/org/name", "org/name", ""));
    CHECK(!is_request("http://127.0.0.1:8080/org/name", "org/name", ""));
    setenv("HF_ENDPOINT", "http://127.0.0.1:8080/", 1);
    CHECK(is_request("http://127.0.0.1:8080/org/name:q8_0", "org/name", "q8_0"));
    unsetenv("HF_ENDPOINT");
    CHECK(is_request(HUB_ENDPOINT "/org/name", "org/name", ""));
    CHECK(is_request(HUB_ENDPOINT "/org/name/", "org/name", ""));
    CHECK(is_request(HUB_ENDPOINT "/org/name:a/b.gguf", "org/name", "a/b.gguf"));
    CHECK(is_request("gpt2", "gpt2", ""));
    static const char *const bad[] = {"",
                                      "/",
                                      "org/",
                                      "/name",
                                      "a/b/c",
                                      "../x",
                                      "org/..",
                                      "org/.x",
                                      "org/a--b",
                                      "org/na me",
                                      "org/name:",
                                      "org/n:..",
                                      "org/n:../a",
                                      "org/n:/a",
                                      "org/n:a//b",
                                      "-o/n",
                                      "o-/n",
                                      "o/n-",
                                      "org/n\x01",
                                      "org/n:a\nb.gguf",
                                      "https://x.y/org/name"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hub_request r;
        if (hub_parse_request(bad[i], NULL, &r, NULL) != HEARTH_ERROR_ARGUMENT)
            test_fail(__FILE__, __LINE__, "'%s' was taken for %s", bad[i], r.repo);
    }
    static const char *const revisions[] = {"", "..", "a/../b", "/a", "a b", "x^", "a:b", "a\\b"};
    for (size_t i = 0; i < sizeof revisions / sizeof *revisions; i++) {
        hub_request r;
        CHECK_INT(hub_parse_request("org/name", revisions[i], &r, NULL), HEARTH_ERROR_ARGUMENT);
    }
    hub_request r;
    CHECK_INT(hub_parse_request("org/name", "refs/pr/1", &r, NULL), HEARTH_OK);
    CHECK_OK(hub_parse_request("hf.co/org/name/resolve/v1/b.gguf", NULL, &r, err));
    CHECK(strcmp(r.revision, "v1") == 0 && strcmp(r.want, "b.gguf") == 0);
}

TEST(paths_that_lead_out_of_their_folder_are_refused)
{
    static const char *const bad[] = {"",    "..",  "../a", "a/../b", "a/..", "/a",         "a//b",
                                      "./a", "a/.", "a/",   "a\\b",   "a\nb", "a\xc2\x9b/b",
                                      /* bytes that are no UTF-8; U+202E, U+2066, U+200B, U+FEFF, U+E0041 */
                                      "a\xff", "a\xc3", "m-\xe2\x80\xaegguf.exe", "a\xe2\x81\xa6" "b",
                                      "a\xe2\x80\x8b", "\xef\xbb\xbf" "a", "a\xf3\xa0\x81\x81"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!hub_is_safe_path(bad[i]));
    CHECK(hub_is_safe_path("Modell-\xc3\xbc-\xe6\xa8\xa1\xe5\x9e\x8b.gguf"));
    CHECK(hub_is_safe_path("a/b..c/...d.gguf"));
}

/* Which of these paths, separated by spaces, is chosen; "" where none or several could be. */
static const char *chosen(const char *paths, const char *want)
{
    static char out[HUB_NAME];
    hub_files list = {.n = 0};
    hub_file at[16];
    hub_request request = {.repo = "org/name"};
    char copy[1000];
    size_t i = 0;
    snprintf(copy, sizeof copy, "%s", paths);
    snprintf(request.want, sizeof request.want, "%s", want);
    for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) at[list.n++] = (hub_file){.path = p, .size = 1};
    list.at = at;
    out[0] = '\0';
    hub_sort_files(&list);
    if (hub_choose(&list, &request, &i, NULL) == HEARTH_OK) snprintf(out, sizeof out, "%s", at[i].path);
    return out;
}

TEST(the_file_that_is_meant_is_chosen)
{
    const char *usual = "m-Q8_0.gguf m-Q4_0.gguf m-Q4_K_M.gguf m-UD-Q4_K_M.gguf mmproj-Q4_K_M.gguf";
    CHECK_TEXT(chosen(usual, ""), "m-Q4_K_M.gguf");
    CHECK_TEXT(chosen(usual, "q8_0"), "m-Q8_0.gguf");
    CHECK_TEXT(chosen(usual, "ud-q4_k_m"), "m-UD-Q4_K_M.gguf");
    CHECK_TEXT(chosen(usual, "m-Q4_0.gguf"), "m-Q4_0.gguf");
    CHECK_TEXT(chosen(usual, "mmproj-Q4_K_M.gguf"), "");
    CHECK_TEXT(chosen(usual, "Q4_K"), "");
    CHECK_TEXT(chosen(usual, "Q5_0"), "");
    CHECK_TEXT(chosen("m-Q8_0.gguf m-Q4_0.gguf", ""), "m-Q4_0.gguf");
    CHECK_TEXT(chosen("m-Q8_0.gguf m-Q2_K.gguf", ""), "m-Q8_0.gguf");
    CHECK_TEXT(chosen("m-Q2_K.gguf", ""), "m-Q2_K.gguf");
    CHECK_TEXT(chosen("m-Q2_K.gguf m-Q3_K_S.gguf", ""), "");
    CHECK_TEXT(chosen("a-7B-Q4_0.gguf a-13B-Q4_0.gguf", "Q4_0"), "");
    CHECK_TEXT(chosen("Q4_0/m-00002-of-00002.gguf Q4_0/m-00001-of-00002.gguf", ""), "Q4_0/m-00001-of-00002.gguf");
    CHECK_TEXT(chosen("Q4_0/m-00002-of-00002.gguf Q4_0/m-00001-of-00002.gguf", "m-00002-of-00002.gguf"),
               "Q4_0/m-00001-of-00002.gguf");
    CHECK_TEXT(chosen("m-UD-Q4_K_XL.gguf", "Q4_K_XL"), "m-UD-Q4_K_XL.gguf");
    const char *both = "m-00001-of-00002.gguf m.gguf m-00002-of-00002.gguf m-00001-of-00003.gguf";
    CHECK_TEXT(chosen(both, "M.gguf"), "m.gguf");
    CHECK_TEXT(chosen(both, "m-00002-of-00002.gguf"), "m-00001-of-00002.gguf");
    CHECK_TEXT(chosen(both, "m-00003-of-00003.gguf"), "");
    CHECK_TEXT(chosen("a/m.gguf b/m.gguf", "m.gguf"), "");
    CHECK_TEXT(chosen("a/m.gguf b/m.gguf", "b/m.gguf"), "b/m.gguf");
}

typedef struct heard {
    size_t n;
    char last[HUB_NAME + 120];
} heard;

static void hear(void *user, const char *line)
{
    heard *h = user;
    h->n++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

TEST(choices_have_the_size_of_all_their_parts)
{
    heard h = {0};
    const hub_watch watch = {.say = hear, .user = &h};
    char paths[][32] = {"m-Q4_0-00002-of-00003.gguf", "a-00002-of-00002.gguf", "m-Q4_0-00001-of-00003.gguf",
                        "m-Q4_0-00002-of-00003.gguf", "m-Q4_0-00001-of-00002.gguf", "mmproj-m-Q4_0.gguf"};
    const uint64_t sizes[] = {200, 7, 100, 200, 50, 9};
    hub_file at[sizeof paths / sizeof *paths] = {{0}};
    hub_files list = {.at = at, .n = sizeof at / sizeof *at};
    for (size_t i = 0; i < list.n; i++) at[i].path = paths[i], at[i].size = sizes[i];
    hub_sort_files(&list);
    hub_say_choices(&list, &watch);
    CHECK(h.n == 2);
    CHECK(strncmp(h.last, "Q4_0", 4) == 0 && strstr(h.last, " 300 bytes  m-Q4_0-00001-of-00003.gguf"));
}

/* A work of n^2 would not end: each file says that it is one of 99999. */
TEST(a_listing_of_199998_files_is_sorted_once)
{
    enum { N = 2 * 99999, LENGTH = 40 };
    heard h = {0};
    const hub_watch watch = {.say = hear, .user = &h};
    hub_file *at = calloc(N, sizeof *at);
    char *paths = calloc(N, LENGTH);
    CHECK(at && paths);
    for (size_t i = 0; i < N; i++) {
        at[i] = (hub_file){.path = paths + i * LENGTH, .size = 1};
        snprintf(at[i].path, LENGTH, "%zu/m-%05zu-of-99999.gguf", i % 2 ? i : 0, i % 2 ? 1 : i / 2 + 1);
    }
    hub_files list = {.at = at, .n = N};
    hub_request request = {.repo = "org/name", .want = "m-00001-of-99999.gguf"};
    size_t i;
    hearth_error why;
    hub_sort_files(&list);
    CHECK(hub_choose(&list, &request, &i, &why) == HEARTH_ERROR_ARGUMENT && strstr(why.message, "100000 files could be meant"));
    snprintf(request.want, sizeof request.want, "0/m-54321-of-99999.gguf");
    CHECK_OK(hub_choose(&list, &request, &i, err));
    CHECK_TEXT(at[i].path, "0/m-00001-of-99999.gguf");
    for (uint32_t part = 1; part <= 99999; part++) {
        const hub_file *f = hub_part_of(&list, i, part);
        if (!f || f->part != part) test_fail(__FILE__, __LINE__, "part %u", part);
    }
    hub_say_choices(&list, &watch);
    CHECK(h.n == 100000);
    free(at);
    free(paths);
}

TEST(names_of_the_cache_are_what_pull_takes)
{
    char name[HUB_NAME];
    const char *paths[] = {"m-Q4_0.gguf", "n-Q4_0.gguf", "m-Q8_0.gguf", "model.gguf"};
    hub_cache_name("org/name", paths[2], paths, 4, name);
    CHECK_TEXT(name, "org/name:Q8_0");
    hub_cache_name("org/name", paths[0], paths, 4, name);
    CHECK_TEXT(name, "org/name:m-Q4_0.gguf");
    hub_cache_name("org/name", paths[0], paths, 1, name);
    CHECK_TEXT(name, "org/name:Q4_0");
    hub_cache_name("org/name", paths[3], paths, 4, name);
    CHECK_TEXT(name, "org/name:model.gguf");
}

TEST(folders_of_the_cache_are_repositories)
{
    char repo[200];
    CHECK(hub_cache_repo_name("models--org--name", repo));
    CHECK_TEXT(repo, "org/name");
    CHECK(hub_cache_repo_name("models--gpt2", repo));
    CHECK_TEXT(repo, "gpt2");
    CHECK(!hub_cache_repo_name("datasets--org--name", repo));
    CHECK(!hub_cache_repo_name("models--", repo));
    CHECK(!hub_cache_repo_name("models--..--x", repo));
    CHECK(!hub_cache_repo_name("models--a--b--c", repo));
}

static size_t match(const char *text, const char **name)
{
    char names[4][40] = {"org/Small-GGUF:Q4_0", "org/Small-GGUF:Q8_0", "llama3.2:1b", "llama3.2:1b-instruct"};
    hub_model at[4];
    hub_models models = {at, 4};
    const hub_model *found = NULL;
    static char copy[40];
    for (size_t i = 0; i < 4; i++) at[i] = (hub_model){.name = names[i], .path = names[i]};
    size_t n = hub_match(&models, text, &found);
    snprintf(copy, sizeof copy, "%s", found ? found->name : "");
    *name = copy;
    return n;
}

TEST(a_part_of_a_name_is_enough_and_a_whole_one_comes_first)
{
    const char *name;
    CHECK_INT(match("small-gguf:q8_0", &name), 1);
    CHECK_TEXT(name, "org/Small-GGUF:Q8_0");
    CHECK_INT(match("Q4", &name), 1);
    CHECK_INT(match("small", &name), 2);
    CHECK_INT(match("llama3.2:1b", &name), 1);
    CHECK_TEXT(name, "llama3.2:1b");
    CHECK_INT(match("llama", &name), 2);
    CHECK_INT(match("nothing", &name), 0);
}
