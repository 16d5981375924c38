/* SPDX-License-Identifier: Apache-2.0 */
/* Circles in the pages of a list (Brent's algorithm). Pure; any thread. */
#include "base/gp_base.h"

#include "providers/common/page_mark.h"

#include "base/str.h"

bool page_mark_repeats(struct page_mark *m, const char *next) {
    if (m->at != NULL && strcmp(next, m->at) == 0) return true;
    if ((m->pages & (m->pages + 1)) == 0) {
        free(m->at);
        m->at = xstrdup(next);
    }
    m->pages++;
    return false;
}

void page_mark_clear(struct page_mark *m) {
    free(m->at);
    *m = (struct page_mark){0};
}
