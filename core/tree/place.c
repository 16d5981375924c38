/* SPDX-License-Identifier: Apache-2.0 */
/* Opens folders below a root without following a link, hashes content by blocks, and reads files around their holes.
 * No state but the caller's; any thread. */
#include "base/gp_base.h"

#include "tree/place.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void place_init(struct tree_place *p, int root) { *p = (struct tree_place){.root = root, .near = -1}; }

void place_forget(struct tree_place *p) {
    if (p->near >= 0) close(p->near);
    p->near = -1;
    free(p->near_path);
    p->near_path = NULL;
}

void place_clear(struct tree_place *p) {
    if (p->near_path != NULL) place_forget(p);
    if (p->root > 0) close(p->root);
    *p = (struct tree_place){.root = -1, .near = -1};
}

int place_parent(struct tree_place *p, const char *path, const char **ret_name) {
    const char *slash = strrchr(path, '/');
    *ret_name = slash != NULL ? slash + 1 : path;
    if (slash == NULL) return p->root;
    size_t len = (size_t)(slash - path);
    if (p->near_path != NULL && strlen(p->near_path) == len && memcmp(p->near_path, path, len) == 0) return p->near;
    GP_AUTO_FREE char *dir = xstrndup(path, len);
    int at = p->root;
    for (char *s = dir; s != NULL;) { /* each part by itself: none of them may be a link */
        char *next = strchr(s, '/');
        if (next != NULL) *next = '\0';
        int fd = openat(at, s, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int e = errno;
        if (at != p->root) close(at);
        if (fd < 0) return -e;
        at = fd;
        if (next != NULL) *next++ = '/';
        s = next;
    }
    place_forget(p);
    p->near = at;
    p->near_path = GP_STEAL(dir);
    return at;
}

/* --- hash --- */

/* SHA-256 of a block of zeros */
static const unsigned char zero_block[TREE_HASH] = {0x30, 0xe1, 0x49, 0x55, 0xeb, 0xf1, 0x35, 0x22, 0x66, 0xdc, 0x2f,
                                                    0xf8, 0x06, 0x7e, 0x68, 0x10, 0x46, 0x07, 0xe7, 0x50, 0xab, 0xb9,
                                                    0xd3, 0xb3, 0x65, 0x82, 0xb8, 0xaf, 0x90, 0x9f, 0xcb, 0x58};

void tree_hash_init(struct tree_hash *h) {
    *h = (struct tree_hash){0};
    sha256_init(&h->blocks);
    sha256_init(&h->block);
}

static void block_done(struct tree_hash *h) {
    unsigned char sum[TREE_HASH];
    sha256_end(&h->block, sum);
    sha256_add(&h->blocks, sum, sizeof sum);
    sha256_init(&h->block);
    h->in_block = 0;
}

void tree_hash_add(struct tree_hash *h, const void *p, size_t n) {
    const unsigned char *b = p;
    h->total += n;
    while (n > 0) {
        size_t take = GP_MIN(n, TREE_BLOCK - h->in_block);
        sha256_add(&h->block, b, take);
        h->in_block += take;
        b += take;
        n -= take;
        if (h->in_block == TREE_BLOCK) block_done(h);
    }
}

void tree_hash_zeros(struct tree_hash *h, uint64_t n) {
    static const unsigned char zeros[4096];
    while (n > 0) {
        if (h->in_block == 0 && n >= TREE_BLOCK) {
            sha256_add(&h->blocks, zero_block, sizeof zero_block);
            h->total += TREE_BLOCK;
            n -= TREE_BLOCK;
            continue;
        }
        size_t take = (size_t)GP_MIN(n, (uint64_t)sizeof zeros);
        take = GP_MIN(take, TREE_BLOCK - h->in_block);
        tree_hash_add(h, zeros, take);
        n -= take;
    }
}

void tree_hash_end(const struct tree_hash *h, unsigned char ret[TREE_HASH]) {
    struct tree_hash copy = *h;
    unsigned char size[8];
    if (copy.in_block > 0) block_done(&copy);
    for (unsigned i = 0; i < 8; i++) size[i] = (unsigned char)(copy.total >> (8 * i));
    sha256_add(&copy.blocks, size, sizeof size);
    sha256_end(&copy.blocks, ret);
}

/* --- reading --- */

void reader_init(struct tree_reader *r, int fd, const struct stat *st, uint64_t at, uint64_t end) {
    *r = (struct tree_reader){.fd = fd, .at = at, .end = end, .data_until = at};
    r->sparse = (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
}

/* Where the data around `at` begins and ends; the end of the file counts as data's end. */
static int find_data(struct tree_reader *r, uint64_t *ret_begin) {
    off_t data = lseek(r->fd, (off_t)r->at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) { /* only a hole follows; or the file became shorter, which is no hole */
        struct stat st;
        if (fstat(r->fd, &st) != 0) return -errno;
        uint64_t size = (uint64_t)st.st_size;
        *ret_begin = GP_MAX(r->at, GP_MIN(size, r->end));
        r->data_until = r->end;
        return 0;
    }
    if (data < 0) { /* a file system without holes */
        r->sparse = false;
        *ret_begin = r->at;
        return 0;
    }
    off_t hole = lseek(r->fd, data, SEEK_HOLE);
    if (hole < 0) return -errno;
    *ret_begin = (uint64_t)data;
    r->data_until = (uint64_t)hole;
    return 0;
}

static bool all_zero(const unsigned char *p, size_t n) { return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0; }

int reader_next(struct tree_reader *r, unsigned char *buf, size_t n, uint64_t *ret_n, bool *ret_hole) {
    *ret_n = 0;
    *ret_hole = false;
    if (r->at >= r->end) return 0;
    if (r->sparse && r->at >= r->data_until) {
        uint64_t begin = 0;
        int e = find_data(r, &begin);
        if (e != 0) return e;
        begin = GP_MIN(begin, r->end);
        if (begin > r->at) {
            *ret_n = GP_MIN(begin - r->at, TREE_HOLE_MAX);
            *ret_hole = true;
            r->at += *ret_n;
            if (r->at < begin) r->data_until = r->at; /* the rest of the hole is found again */
            return 0;
        }
    }
    uint64_t most = r->end - r->at;
    if (r->sparse && r->data_until > r->at) most = GP_MIN(most, r->data_until - r->at);
    ssize_t got = 0;
    do got = pread(r->fd, buf, (size_t)GP_MIN(most, (uint64_t)n), (off_t)r->at);
    while (got < 0 && errno == EINTR);
    if (got < 0) return -errno;
    r->at += (uint64_t)got;
    *ret_n = (uint64_t)got;
    *ret_hole = got >= 4096 && all_zero(buf, (size_t)got);
    return 0;
}
