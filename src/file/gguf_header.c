/* The first 24 bytes of a part: magic, version, counts. Called by gguf_open.c. The error for a wrong file names
 * the format that it probably has. */
#include "file/gguf_int.h"

#include <inttypes.h>

/* Magic bytes of other files that users mistake for a model. */
static const struct {
    const char *bytes;
    size_t n;
    const char *name;
} others[] = {
    {"FUGG", 4, "GGUF with swapped bytes (big-endian): convert the model to little-endian"},
    {"GGML", 4, "a GGML file, older than GGUF: convert the model again"},
    {"lmgg", 4, "a GGML file, older than GGUF: convert the model again"},
    {"fmgg", 4, "a GGMF file, older than GGUF: convert the model again"},
    {"tjgg", 4, "a GGJT file, older than GGUF: convert the model again"},
    {"ggjt", 4, "a GGJT file, older than GGUF: convert the model again"},
    {"algg", 4, "a GGLA adapter, older than GGUF: convert it again"},
    {"PK\3\4", 4, "a ZIP archive, as PyTorch writes checkpoints: convert it to GGUF"},
    {"\x80\2", 2, "a Python pickle, as PyTorch writes checkpoints: convert it to GGUF"},
    {"\x80\3", 2, "a Python pickle: convert it to GGUF"},
    {"\x80\4", 2, "a Python pickle: convert it to GGUF"},
    {"\x7f" "ELF", 4, "a program (ELF)"},
    {"<!DO", 4, "a web page: the download gave an error page"},
    {"<!do", 4, "a web page: the download gave an error page"},
    {"<htm", 4, "a web page: the download gave an error page"},
    {"<HTM", 4, "a web page: the download gave an error page"},
    {"<?xm", 4, "XML: the download gave an error page"},
    {"vers", 4, "text, perhaps a Git LFS pointer: fetch the file itself (git lfs pull)"},
    {"\x1f\x8b", 2, "gzip data: unpack it first"},
    {"\x28\xb5\x2f\xfd", 4, "Zstandard data: unpack it first"},
    {"\0\0\0\0", 4, "zeros: the download is not finished"},
};

/* safetensors start with the length of their JSON header (8 bytes) and the header. */
static bool is_safetensors(const unsigned char *bytes, size_t n)
{
    return n >= 9 && bytes[8] == '{' && hth_gguf_load(bytes, 8) < (1u << 30);
}

static const char *looks_like(const unsigned char *bytes, size_t n)
{
    if (is_safetensors(bytes, n)) return "safetensors: convert it to GGUF";
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (n >= others[i].n && memcmp(bytes, others[i].bytes, others[i].n) == 0)
            return others[i].name;
    return NULL;
}

static hearth_status check_magic(hth_gguf_cursor *c)
{
    const unsigned char *bytes;
    uint64_t size = c->source->size;
    size_t n = size < HTH_GGUF_HEADER_SIZE ? (size_t)size : HTH_GGUF_HEADER_SIZE;
    hearth_status status = hth_gguf_read_bytes(c, n, "header", &bytes);
    if (status != HEARTH_OK) return status;
    c->offset = 0; /* peeks only */
    if (n >= 4 && memcmp(bytes, "GGUF", 4) != 0 && memcmp(bytes, "PWRI", 4) != 0) {
        hth_gguf_shown magic = hth_gguf_show((hth_str){(const char *)bytes, 4});
        const char *other = looks_like(bytes, n);
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                               "magic at byte 0 is '%s', expected 'GGUF'%s%s%s", magic.text,
                               other ? " (looks like " : "", other ? other : "", other ? ")" : "");
    }
    if (n < HTH_GGUF_HEADER_SIZE)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                               "too short for a GGUF header: the file ends at byte %" PRIu64
                               ", a header has %d bytes",
                               size, HTH_GGUF_HEADER_SIZE);
    return HEARTH_OK;
}

static hearth_status check_version(hth_gguf_cursor *c, uint64_t version)
{
    if (version == 2 || version == HTH_GGUF_VERSION) return HEARTH_OK;
    if (version == 1)
        return hth_gguf_error(c, HEARTH_ERROR_UNSUPPORTED,
                               "version at byte 4 is 1, allowed are 2 and 3: convert the model again");
    if ((version & 0xffff) == 0 && version != 0)
        return hth_gguf_error(c, HEARTH_ERROR_UNSUPPORTED,
                               "version at byte 4 is 0x%08" PRIx64
                               ": the file is big-endian, convert it to little-endian",
                               version);
    return hth_gguf_error(c, HEARTH_ERROR_UNSUPPORTED,
                           "version at byte 4 is %" PRIu64 ", allowed are 2 and 3", version);
}

hearth_status hth_gguf_parse_header(hth_gguf_cursor *c, hth_gguf_part *part)
{
    uint64_t magic = 0, version = 0;
    c->context = (hth_gguf_context){.kind = "header"};
    c->mark = UINT64_MAX;
    hearth_status status = check_magic(c);
    if (status == HEARTH_OK) status = hth_gguf_read_int(c, 4, "magic", &magic);
    if (status == HEARTH_OK) status = hth_gguf_read_int(c, 4, "version", &version);
    if (status == HEARTH_OK) status = check_version(c, version);
    if (status == HEARTH_OK)
        status = hth_gguf_read_count(c, "number of tensors", 0, HTH_GGUF_MAX_TENSOR,
                                     HTH_GGUF_MIN_INFO_SIZE, &part->n_tensor);
    if (status == HEARTH_OK)
        status = hth_gguf_read_count(c, "number of metadata pairs", 0, HTH_GGUF_MAX_PAIR,
                                     HTH_GGUF_MIN_PAIR_SIZE, &part->n_pair);
    part->version = (uint32_t)version;
    part->powerinfer = magic == hth_gguf_load("PWRI", 4);
    return status;
}
