/* The list of devices is that of the back ends, in the words of hearth/device.h; levels and features are those of the
 * machine and the build. */
#include "base/system/cpu.h"
#include "device/device.h"
#include "store/disk.h"
#include "support/models/tiny_model.h"
#include "support/models/vocab_file.h"
#include "support/test.h"

TEST(devices_are_those_of_the_back_ends)
{
    static hth_device_info found[HTH_MAX_DEVICE];
    char note[200], name[32];
    size_t n;
    hearth_devices *devices = NULL;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    CHECK_OK(hearth_devices_open(&devices, err));
    CHECK_TEXT(hearth_devices_note(devices), note);
    CHECK_INT(hearth_devices_count(devices), n);
    for (size_t i = 0; i < n; i++) {
        hearth_device_info d = {.size = sizeof d};
        CHECK_INT(hearth_devices_get(devices, i, &d), HEARTH_OK);
        snprintf(name, sizeof name, "vulkan:%zu", i);
        CHECK_TEXT(d.device, name);
        CHECK_TEXT(d.description, found[i].name);
        CHECK_TEXT(d.driver, found[i].driver);
        CHECK_TEXT(d.problem, found[i].unsupported_reason);
        CHECK_INT(d.is_usable, !d.problem[0]);
        CHECK_INT(d.is_auto, i == hth_device_best(found, n));
        CHECK_INT(d.kind, (int)found[i].kind);
        CHECK_INT(d.memory_bytes, found[i].memory);
        CHECK_INT(d.binding_bytes, found[i].max_binding_size);
        CHECK_INT(strlen(d.uuid), 32);
        CHECK_INT(strtol((char[]){d.uuid[0], d.uuid[1], 0}, NULL, 16), found[i].uuid[0]);
        CHECK_INT(strtol(d.uuid + 30, NULL, 16), found[i].uuid[15]);
        CHECK_INT(d.matrix_shapes[0] != 0, found[i].n_shape > 0);
    }
    hearth_device_info none = {.size = sizeof none};
    CHECK_INT(hearth_devices_get(devices, n, &none), HEARTH_ERROR_ARGUMENT);
    hearth_devices_close(devices);
    if (n == 0) test_note("no device here: %s", note);
}

TEST(levels_are_those_of_the_machine_best_first)
{
    CHECK_TEXT(hearth_cpu_level(0), hth_cpu_name(hth_cpu_detect()));
    size_t n = 0;
    while (hearth_cpu_level(n)) n++;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) CHECK(strcmp(hearth_cpu_level(i), hearth_cpu_level(k)) != 0);
    CHECK_TEXT(hearth_cpu_level(n - 1), "generic");
}

static bool has(const char *feature)
{
    const char *name;
    bool built = false;
    for (size_t i = 0; (name = hearth_feature(i, &built)); i++)
        if (strcmp(name, feature) == 0) return built;
    test_fail(__FILE__, __LINE__, "there is no feature %s", feature);
    return false;
}

/* What a build lacks is refused where it is asked for. */
TEST(features_are_what_works)
{
    vocab_file f = {0};
    hth_gguf *file = NULL;
    hth_tokenizer *tok = NULL;
    vocab_file_begin_bpe(&f);
    vocab_file_add_merge(&f, "ab", 2, 1);
    CHECK_INT(has("bpe"), vocab_file_open(&f, &file, &tok, NULL) == HEARTH_OK);
    hth_tokenizer_close(tok);
    hth_gguf_close(file);
    vocab_file_free(&f);

    hearth_error why = {0};
    hth_disk *disk = NULL;
    if (hth_disk_open_uring(&disk, &why) == HEARTH_OK) disk->ops->close(disk);
    CHECK_INT(has("io_uring"), !strstr(why.message, "built without"));
    hearth_devices *devices = NULL;
    CHECK_OK(hearth_devices_open(&devices, err));
    CHECK_INT(has("vulkan"), !strstr(hearth_devices_note(devices), "this build has no Vulkan"));
    hearth_devices_close(devices);
    has("wordpiece");
    bool built = true;
    CHECK(!hearth_feature(5, &built) && !built);
}
