/* SPDX-License-Identifier: Apache-2.0 */
/* A file as it arrives: written under a name of its own, checked by its hash, renamed into place. */
#include "base/gp_base.h"

#include "tree/take.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const char *path_of(struct taker *t) { return catalog_at(&t->list, t->in.index)->path; }

void take_file_close(struct taker *t) {
    if (t->in.fd >= 0) close(t->in.fd);
    t->in.fd = -1;
}

static int busy(struct gp_error *err, const char *path) {
    return gp_fail(err, GP_EBUSY, "another gpuprov copies '%.300s' now; repeat this command when it is done", path);
}

int take_file_begin(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    struct taker *t = s->taker;
    uint32_t index = cursor_u32(c);
    uint64_t offset = cursor_u64(c);
    if (!cursor_whole(c) || t->in.fd >= 0 || index >= t->looked || t->list.all.items[index].state != ENTRY_WANTED)
        return side_nonsense(err, "a file that is not wanted");
    const struct beginning *b = &t->beginning;
    bool goes_on = offset > 0;
    if (goes_on && !(b->offered && b->index == index && b->offset == offset))
        return side_nonsense(err, "an offset that was not offered");
    const struct tree_entry *e = catalog_at(&t->list, index);
    const char *name = "";
    struct stat st;
    int dir = place_parent(&t->place, e->path, &name);
    int fd = dir < 0 ? dir : take_part_open(dir, name, true, &st);
    if (fd == -EWOULDBLOCK) return busy(err, e->path);
    if (fd < 0) return side_io(err, -fd, "write", e->path);
    t->in = (struct incoming){.fd = fd, .index = index, .at = offset, .size = e->size};
    if (goes_on) t->in.hash = b->hash;
    else tree_hash_init(&t->in.hash);
    if ((uint64_t)st.st_size < offset) return side_nonsense(err, "a beginning that is gone");
    if (st.st_size != (off_t)offset && ftruncate(fd, (off_t)offset) != 0) return side_io(err, errno, "write", e->path);
    return 0;
}

int take_file_data(struct tree_side *s, const unsigned char *p, size_t n, struct gp_error *err) {
    struct taker *t = s->taker;
    struct incoming *in = &t->in;
    if (in->fd < 0 || n == 0 || n > in->size - in->at) return side_nonsense(err, "more bytes than it announced");
    tree_hash_add(&in->hash, p, n);
    s->stats.bytes_sent += n;
    while (n > 0) {
        ssize_t w = pwrite(in->fd, p, n, (off_t)in->at);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return side_io(err, errno, "write", path_of(t));
        p += w;
        n -= (size_t)w;
        in->at += (uint64_t)w;
    }
    return 0;
}

int take_file_hole(struct tree_side *s, uint64_t n, struct gp_error *err) {
    struct incoming *in = &s->taker->in;
    if (in->fd < 0 || n == 0 || n > TREE_HOLE_MAX || n > in->size - in->at)
        return side_nonsense(err, "more bytes than it announced");
    tree_hash_zeros(&in->hash, n);
    in->at += n; /* the file was cut at its last byte, so nothing is there */
    return 0;
}

int take_file_meta(int dir, const char *name, int fd, const struct tree_entry *e) {
    /* The time of a file that was changed just now is set one off: its next change may leave the time as it is, and the
     * next transfer must compare it by its hash. */
    long ns = e->racy ? (long)(e->mtime_ns ^ 1u) : (long)e->mtime_ns;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = e->mtime_s, .tv_nsec = ns}};
    GP_AUTO_FD int own = -1;
    if (fd < 0) fd = own = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return fchmod(fd, e->mode) == 0 && futimens(fd, times) == 0 ? 0 : -errno;
}

static int move_into_place(struct tree_side *s, const struct tree_entry *e, struct gp_error *err) {
    struct taker *t = s->taker;
    char part[40];
    const char *name = "";
    int dir = place_parent(&t->place, e->path, &name);
    if (dir < 0) return side_io(err, -dir, "write", e->path);
    take_part_name(name, part);
    int meta = take_file_meta(dir, part, t->in.fd, e);
    if (meta != 0) return side_io(err, -meta, "set time and mode of", e->path);
    if (renameat(dir, part, dir, name) == 0) return 0;
    if (errno == EISDIR) return gp_fail(err, GP_EIO, "'%.300s' is a folder there, and a file here", e->path);
    return side_io(err, errno, "write", e->path);
}

int take_file_end(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    struct taker *t = s->taker;
    struct incoming *in = &t->in;
    const unsigned char *sent = cursor_raw(c, TREE_HASH);
    unsigned changed = cursor_u8(c);
    unsigned char hash[TREE_HASH];
    if (!cursor_whole(c) || changed > 1 || in->fd < 0) return side_nonsense(err, "the end of no file");
    const struct tree_entry *e = catalog_at(&t->list, in->index);
    tree_hash_end(&in->hash, hash);
    if (memcmp(hash, sent, sizeof hash) != 0 || (in->at != in->size && changed == 0)) {
        if (ftruncate(in->fd, 0) != 0) { /* the next transfer finds a beginning with another hash, and drops it */
        }
        return gp_fail(err, GP_EPROTO, "'%.300s' did not arrive as it was sent; repeat the command", e->path);
    }
    if (ftruncate(in->fd, (off_t)in->at) != 0) return side_io(err, errno, "write", e->path); /* a hole at its end */
    int r = move_into_place(s, e, err);
    if (r != 0) return r;
    if (changed == 1) tree_note(&s->stats.notes, e->path, "it changed while it was read");
    t->list.all.items[in->index].state = ENTRY_OK;
    t->answered++;
    s->stats.files_sent++;
    take_file_close(t);
    return 0;
}
