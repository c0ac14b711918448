/* Pointers into a document (RFC 6901), as references of JSON schemas have them. */
#include "text/json.h"

/* One part of a pointer (RFC 6901, percent-encoded as in a URI); false: it is not this name. */
static bool is_part(const char *part, size_t n, hth_str name)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++, k++) {
        char byte = part[i];
        if (byte == '~' && i + 1 < n && (part[i + 1] == '0' || part[i + 1] == '1')) {
            byte = part[++i] == '0' ? '~' : '/';
        } else if (byte == '%' && i + 2 < n) {
            unsigned value = 0;
            for (size_t d = 1; d <= 2; d++) {
                char h = (char)(part[i + d] | 0x20);
                bool is_digit = h >= '0' && h <= '9', is_letter = h >= 'a' && h <= 'f';
                if (!is_digit && !is_letter) return false;
                value = value << 4 | (unsigned)(is_digit ? h - '0' : h - 'a' + 10);
            }
            byte = (char)value;
            i += 2;
        }
        if (k >= name.n || name.bytes[k] != byte) return false;
    }
    return k == name.n;
}

static bool is_index(const char *part, size_t n, uint32_t index)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n && value <= UINT32_MAX; i++) {
        if (part[i] < '0' || part[i] > '9') return false;
        value = value * 10 + (uint64_t)(part[i] - '0');
    }
    return n > 0 && value == index;
}

const hth_json *hth_json_at(const hth_json *root, hth_str pointer)
{
    const char *p = pointer.bytes + 1, *end = pointer.bytes + pointer.n;
    if (pointer.n == 0 || pointer.bytes[0] != '#' || (p < end && *p != '/')) return NULL;
    for (const hth_json *v; p < end && root; root = v) {
        const char *part = ++p;
        while (p < end && *p != '/') p++;
        size_t n = (size_t)(p - part);
        bool is_array = root->kind == HTH_JSON_ARRAY;
        v = root->child;
        while (v && !(is_array ? is_index(part, n, v->index) : is_part(part, n, v->key))) v = v->next;
    }
    return root;
}
