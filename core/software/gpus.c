/* SPDX-License-Identifier: Apache-2.0 */
/* GPU architectures: by names and by ranges of PCI device ids. The table of models (validate/suite) has figures; here
 * only the architecture matters, also of models that it does not list. Pure; any thread. */
#include "base/gp_base.h"

#include "software/rows.h"

#include <ctype.h>

static const char *family(int cc) {
    return cc < 60    ? "Maxwell"
           : cc < 70  ? "Pascal"
           : cc < 75  ? "Volta"
           : cc < 80  ? "Turing"
           : cc == 89 ? "Ada"
           : cc < 90  ? "Ampere"
           : cc < 100 ? "Hopper"
                      : "Blackwell";
}

/* One or more words of a name, joined, in lower case: "rtx4090" is "RTX 4090" too. A word may end in further letters
 * ("H100SXM"). The longest row counts. */
struct name_row {
    const char *word;
    int cc;
    bool grace;
    int nvswitch;
    bool nvl72;
    bool consumer;
};
static const struct name_row names[] = {
    {.word = "m60", .cc = 52},
    {.word = "p100", .cc = 60},
    {.word = "p4", .cc = 61},
    {.word = "p40", .cc = 61},
    {.word = "v100", .cc = 70},
    {.word = "titanv", .cc = 70, .consumer = true},
    {.word = "t4", .cc = 75},
    {.word = "t4g", .cc = 75},
    {.word = "rtx6000", .cc = 75},
    {.word = "rtx8000", .cc = 75},
    {.word = "a100", .cc = 80, .nvswitch = -1},
    {.word = "a100pcie", .cc = 80},
    {.word = "a800", .cc = 80, .nvswitch = -1},
    {.word = "a30", .cc = 80},
    {.word = "a2", .cc = 86},
    {.word = "a10", .cc = 86},
    {.word = "a10g", .cc = 86},
    {.word = "a16", .cc = 86},
    {.word = "a40", .cc = 86},
    {.word = "a4000", .cc = 86},
    {.word = "a5000", .cc = 86},
    {.word = "a6000", .cc = 86},
    {.word = "rtx3090", .cc = 86, .consumer = true},
    {.word = "rtx6000ada", .cc = 89},
    {.word = "l4", .cc = 89},
    {.word = "l20", .cc = 89},
    {.word = "l40", .cc = 89},
    {.word = "l40s", .cc = 89},
    {.word = "rtx4090", .cc = 89, .consumer = true},
    {.word = "4090", .cc = 89, .consumer = true},
    {.word = "h100", .cc = 90, .nvswitch = -1},
    {.word = "h100pcie", .cc = 90},
    {.word = "h100nvl", .cc = 90},
    {.word = "h20", .cc = 90, .nvswitch = -1},
    {.word = "h800", .cc = 90, .nvswitch = -1},
    {.word = "h200", .cc = 90, .nvswitch = -1},
    {.word = "h200nvl", .cc = 90},
    {.word = "gh200", .cc = 90, .grace = true},
    {.word = "b200", .cc = 100, .nvswitch = 1},
    {.word = "gb200", .cc = 100, .grace = true, .nvl72 = true},
    {.word = "b300", .cc = 103, .nvswitch = 1},
    {.word = "gb300", .cc = 103, .grace = true, .nvl72 = true},
    {.word = "rtx5090", .cc = 120, .consumer = true},
    {.word = "5090", .cc = 120, .consumer = true},
    {.word = "rtxpro6000", .cc = 120},
    {.word = NULL},
};

/* Ranges of PCI device ids (pci.ids). Models that differ from the rest of their range stand before it. */
struct pci_row {
    unsigned from, to;
    int cc;
    bool grace;
    int nvswitch;
    bool nvl72;
};
static const struct pci_row ranges[] = {
    {0x1340, 0x147f, 50, false, 0, false},  {0x13c0, 0x13ff, 52, false, 0, false},
    {0x15f0, 0x15ff, 60, false, 0, false},  {0x17c0, 0x17ff, 52, false, 0, false},
    {0x1b00, 0x1d7f, 61, false, 0, false},  {0x1d80, 0x1dff, 70, false, 0, false},
    {0x20b5, 0x20b7, 80, false, 0, false},  {0x20f0, 0x20ff, 80, false, 0, false},
    {0x2080, 0x20ef, 80, false, -1, false}, {0x1e00, 0x21ff, 75, false, 0, false},
    {0x2200, 0x227f, 86, false, 0, false},  {0x2321, 0x2321, 90, false, 0, false},
    {0x2331, 0x2331, 90, false, 0, false},  {0x233b, 0x233b, 90, false, 0, false},
    {0x2342, 0x2348, 90, true, 0, false},   {0x2300, 0x237f, 90, false, -1, false},
    {0x2480, 0x25ff, 86, false, 0, false},  {0x2680, 0x28ff, 89, false, 0, false},
    {0x2941, 0x2941, 100, true, 0, true},   {0x2900, 0x293f, 100, false, 1, false},
    {0x2b00, 0x2fff, 120, false, 0, false}, {0x31c0, 0x31ff, 103, true, 0, true},
    {0x3180, 0x31bf, 103, false, 1, false}, {0, 0, 0, false, 0, false},
};

/* Splits a name into lower-case words; the text of all is in `all`. */
static size_t split(const char *text, char all[80], const char *words[12]) {
    size_t n = 0, used = 0;
    bool in_word = false;
    for (; *text != '\0' && used + 2 < 80; text++) {
        bool part = isalnum((unsigned char)*text);
        if (part && !in_word) {
            if (n == 12) break;
            words[n++] = all + used;
        }
        if (part) all[used++] = (char)tolower((unsigned char)*text);
        else if (in_word) all[used++] = '\0';
        in_word = part;
    }
    all[used] = '\0';
    return n;
}

/* Length of the row's word if the words from words[0] on are it; 0: they are not. */
static size_t matches(const char *word, const char *const *words, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < n && word[at] != '\0'; i++) {
        const char *w = words[i];
        for (; *w != '\0' && word[at] == *w; w++) at++;
        if (word[at] == '\0') return isdigit((unsigned char)*w) ? 0 : at;
        if (*w != '\0') return 0;
    }
    return word[at] == '\0' ? at : 0;
}

bool software_gpu_named(const char *text, struct software_gpu *ret) {
    char all[80];
    const char *words[12];
    size_t n = split(text, all, words), longest = 0;
    const struct name_row *best = NULL;
    for (const struct name_row *r = names; r->word != NULL; r++) {
        for (size_t i = 0; i < n; i++) {
            size_t len = matches(r->word, words + i, n - i);
            if (len <= longest) continue;
            longest = len;
            best = r;
        }
    }
    if (best == NULL) return false;
    *ret = (struct software_gpu){.name = text,
                                 .family = family(best->cc),
                                 .cc = best->cc,
                                 .grace = best->grace,
                                 .nvswitch = best->nvswitch,
                                 .nvl72 = best->nvl72,
                                 .consumer = best->consumer};
    return true;
}

bool software_gpu_pci(unsigned device, struct software_gpu *ret) {
    for (const struct pci_row *r = ranges; r->to != 0; r++) {
        if (device < r->from || device > r->to) continue;
        *ret = (struct software_gpu){.name = "",
                                     .family = family(r->cc),
                                     .cc = r->cc,
                                     .grace = r->grace,
                                     .nvswitch = r->nvswitch,
                                     .nvl72 = r->nvl72};
        return true;
    }
    return false;
}
