#include "instance/kv_cache/free_list.h"

namespace spillway::instance {

// Shortens a run to `blocks`; the rest becomes a run of its own, in the same state.
void FreeList::cut(Run run, std::int64_t blocks) {
  Entry rest = nodes_[run];
  rest.first += blocks;
  rest.blocks -= blocks;
  const Run cut_off = nodes_.make(rest);
  Entry& entry = nodes_[run];
  entry.blocks = blocks;
  entry.rest = cut_off;
  if (entry.kind != Kind::blank) entry.following = cut_off;
  // The blocks of a run are taken from the last to the first.
  if (entry.references == 0) nodes_.link(run, cut_off);
}

// Removes the registrations of the blocks from `first` to `end`; returns the last registered run
// before them.
FreeList::Run FreeList::unregister(std::uint64_t key, std::int64_t first, std::int64_t end) {
  Run before = kNone;
  Run run = registered_.find(key);
  while (run != kNone && nodes_[run].first < end) {
    if (nodes_[run].first < first) {
      if (nodes_[run].end() > first) cut(run, first - nodes_[run].first);
      before = run;
      run = nodes_[run].following;
      continue;
    }
    if (nodes_[run].end() > end) cut(run, end - nodes_[run].first);
    nodes_[run].kind = Kind::replaced;
    run = nodes_[run].following;
    if (before != kNone) {
      nodes_[before].following = run;
    } else if (run != kNone) {
      registered_.set(key, run);
    } else {
      registered_.erase(key);
    }
  }
  return before;
}

// The last registered run that ends at `first` or before.
FreeList::Run FreeList::last_before(std::uint64_t key, std::int64_t first) const {
  Run before = kNone;
  for (Run run = registered_.find(key); run != kNone && nodes_[run].end() <= first;
       run = nodes_[run].following) {
    before = run;
  }
  return before;
}

// Registers a run; `before` is the registered one before it.
void FreeList::link_registered(Run run, Run before) {
  const std::uint64_t key = nodes_[run].key;
  nodes_[run].kind = Kind::registered;
  if (before != kNone) {
    nodes_[run].following = nodes_[before].following;
    nodes_[before].following = run;
  } else {
    nodes_[run].following = registered_.find(key);
    registered_.set(key, run);
  }
}

// Registers a run in place of what is registered under its identities.
void FreeList::enroll(Run run) {
  if (equal_ == EqualBlocks::first) return enroll_behind(run);
  link_registered(run, unregister(nodes_[run].key, nodes_[run].first, nodes_[run].end()));
}

// Registers a run where nothing is registered under its identities; elsewhere it is a copy.
void FreeList::enroll_behind(Run run) {
  while (run != kNone) {
    const std::uint64_t key = nodes_[run].key;
    const std::int64_t first = nodes_[run].first;
    const std::int64_t end = nodes_[run].end();
    const Run before = last_before(key, first);
    const Run other = before == kNone ? registered_.find(key) : nodes_[before].following;
    const bool is_copy = other != kNone && nodes_[other].first <= first;
    std::int64_t part = end;
    if (other != kNone) part = std::min(end, is_copy ? nodes_[other].end() : nodes_[other].first);
    if (part < end) cut(run, part - first);
    const Run rest = part < end ? nodes_[run].rest : kNone;
    is_copy ? add_copy(run) : link_registered(run, before);
    run = rest;
  }
}

void FreeList::add_copy(Run run) {
  const std::uint64_t key = nodes_[run].key;
  nodes_[run].kind = Kind::replaced;
  nodes_[run].following = kNone;
  Run last = copies_.find(key);
  if (last == kNone) return copies_.set(key, run);
  while (nodes_[last].following != kNone) last = nodes_[last].following;
  nodes_[last].following = run;
}

void FreeList::remove_copy(Run run) {
  const std::uint64_t key = nodes_[run].key;
  const Run after = nodes_[run].following;
  Run before = copies_.find(key);
  if (before != run) {
    while (nodes_[before].following != run) before = nodes_[before].following;
    nodes_[before].following = after;
  } else if (after != kNone) {
    copies_.set(key, after);
  } else {
    copies_.erase(key);
  }
}

// The first copies of blocks that are no longer registered are registered.
void FreeList::promote_copies(std::uint64_t key, std::int64_t first, std::int64_t end) {
  if (first >= end) return;
  Run run = copies_.find(key);
  while (run != kNone && (nodes_[run].end() <= first || nodes_[run].first >= end)) {
    run = nodes_[run].following;
  }
  if (run == kNone) return;
  const std::int64_t from = std::max(first, nodes_[run].first);
  const std::int64_t to = std::min(end, nodes_[run].end());
  if (nodes_[run].first < from) {
    cut(run, from - nodes_[run].first);
    run = nodes_[run].rest;
  }
  if (to < nodes_[run].end()) cut(run, to - from);
  remove_copy(run);
  link_registered(run, last_before(key, from));
  promote_copies(key, first, from);
  promote_copies(key, to, end);
}

// The last blocks of a run are forgotten.
void FreeList::forget_last(Run run, std::int64_t blocks) {
  const Entry& entry = nodes_[run];
  if (equal_ == EqualBlocks::first && entry.kind == Kind::replaced) {
    if (blocks == entry.blocks) remove_copy(run);
    return;
  }
  const bool is_rest_registered = entry.kind == Kind::registered && blocks < entry.blocks;
  // roll_back erases by identity, even if another block is now registered under it.
  if (!is_rest_registered &&
      (entry.kind == Kind::registered || allocation_ == Allocation::roll_back)) {
    unregister(entry.key, entry.end() - blocks, entry.end());
  }
}

// The last blocks of a free run leave it.
[[gnu::always_inline]] inline void FreeList::shorten(Run run, std::int64_t blocks) {
  nodes_[run].blocks -= blocks;
  if (nodes_[run].blocks == 0) nodes_.erase(run);
}

void FreeList::take(std::int64_t blocks) {
  while (blocks > 0) {
    const Run run = nodes_.front();
    const std::int64_t taken = std::min(nodes_[run].blocks, blocks);
    nodes_[run].kind == Kind::blank ? shorten(run, taken) : take_last(run, taken);
    blocks -= taken;
  }
}

// The same for a run with an identity: they are forgotten.
void FreeList::take_last(Run run, std::int64_t blocks) {
  const bool promotes = equal_ == EqualBlocks::first && nodes_[run].kind == Kind::registered;
  const std::uint64_t key = nodes_[run].key;
  const std::int64_t end = nodes_[run].end();
  forget_last(run, blocks);
  shorten(run, blocks);
  if (promotes) promote_copies(key, end - blocks, end);
}

std::int64_t FreeList::blank_at_head() const {
  if (nodes_.empty() || nodes_[nodes_.front()].kind != Kind::blank) return 0;
  return nodes_[nodes_.front()].blocks;
}

void FreeList::append_blank(std::int64_t blocks) {
  if (blocks == 0) return;
  if (!nodes_.empty() && nodes_[nodes_.back()].kind == Kind::blank) {
    nodes_[nodes_.back()].blocks += blocks;
  } else {
    nodes_.push_back({.blocks = blocks});
  }
}

void FreeList::prepend_blank(std::int64_t blocks) {
  if (blocks == 0) return;
  if (!nodes_.empty() && nodes_[nodes_.front()].kind == Kind::blank) {
    nodes_[nodes_.front()].blocks += blocks;
  } else {
    nodes_.push_front({.blocks = blocks});
  }
}

void FreeList::append(std::uint64_t key, std::int64_t first, std::int64_t blocks) {
  enroll(nodes_.push_back({.key = key, .first = first, .blocks = blocks}));
}

FreeList::Stretch FreeList::add(std::uint64_t key, std::int64_t first, std::int64_t blocks) {
  const Run run = nodes_.make({.key = key, .first = first, .blocks = blocks, .references = 1});
  enroll(run);
  in_use_ += blocks;
  return {run, blocks};
}

bool FreeList::extend(Stretch& stretch, std::uint64_t key, std::int64_t blocks) {
  const Entry& entry = nodes_[stretch.run];
  if (entry.key != key || entry.references > 1 || entry.blocks != stretch.blocks ||
      entry.kind != Kind::registered) {
    return false;
  }
  if (equal_ == EqualBlocks::first) {
    const Run next = entry.following;
    if (next != kNone && nodes_[next].first < entry.end() + blocks) return false;
  } else {
    unregister(key, entry.end(), entry.end() + blocks);
  }
  nodes_[stretch.run].blocks += blocks;
  stretch.blocks += blocks;
  in_use_ += blocks;
  return true;
}

std::int64_t FreeList::reference(const Stretch& stretch) {
  const Run run = stretch.run;
  if (stretch.blocks < nodes_[run].blocks) cut(run, stretch.blocks);
  if (nodes_[run].references++ > 0) return 0;
  in_use_ += stretch.blocks;
  const Run before = nodes_.previous(run);
  const Run after = nodes_.next(run);
  nodes_.unlink(run);
  // Adjacent runs of blank blocks are merged.
  if (before != kNone && after != kNone && nodes_[before].kind == Kind::blank &&
      nodes_[after].kind == Kind::blank) {
    nodes_[before].blocks += nodes_[after].blocks;
    nodes_.erase(after);
  }
  return stretch.blocks;
}

std::int64_t FreeList::release(const Stretch& stretch) {
  std::int64_t freed = 0;
  const Entry& entry = nodes_[stretch.run];
  if (stretch.blocks > entry.blocks) freed = release({entry.rest, stretch.blocks - entry.blocks});
  if (--nodes_[stretch.run].references > 0) return freed;
  nodes_.link_back(stretch.run);
  in_use_ -= entry.blocks;
  return freed + entry.blocks;
}

}  // namespace spillway::instance
