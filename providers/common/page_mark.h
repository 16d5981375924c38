/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a circle in the pages of a list by the names of the next pages (a URL, a token). Owned by its list. */
#ifndef GP_COMMON_PAGE_MARK_H
#define GP_COMMON_PAGE_MARK_H

#include <stdbool.h>

struct page_mark {
    char *at; /* the name of page 1, 2, 4, 8, ...: no circle of pages misses all */
    int pages;
};
/* Takes the name of the next page. True: an earlier page had it. No circle is followed for more than about three times
 * its length and what led to it. */
bool page_mark_repeats(struct page_mark *m, const char *next);
void page_mark_clear(struct page_mark *m);

#endif
