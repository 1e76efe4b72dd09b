#include "instance/kv_cache/free_list.h"

#include <algorithm>

namespace spillway::instance {

void FreeList::forget(Node node) {
  const std::uint64_t identity = nodes_[node].identity;
  // roll_back erases by identity, even if another block is now registered under it.
  if (allocation_ == Allocation::roll_back || registered_.find(identity) == node) {
    registered_.erase(identity);
  }
}

void FreeList::take(std::int64_t blocks) {
  while (blocks > 0) {
    const Node node = nodes_.front();
    Entry& entry = nodes_[node];
    if (entry.blank > blocks) {
      entry.blank -= blocks;
      return;
    }
    if (entry.blank == 0) forget(node);
    blocks -= std::max<std::int64_t>(entry.blank, 1);
    nodes_.erase(node);
  }
}

std::int64_t FreeList::blank_at_head() const {
  return nodes_.empty() ? 0 : nodes_[nodes_.front()].blank;
}

void FreeList::append_blank(std::int64_t blocks) {
  if (blocks == 0) return;
  if (!nodes_.empty() && nodes_[nodes_.back()].blank > 0) {
    nodes_[nodes_.back()].blank += blocks;
  } else {
    nodes_.push_back({.blank = blocks});
  }
}

void FreeList::append(std::uint64_t identity) {
  registered_.set(identity, nodes_.push_back({.identity = identity}));
}

FreeList::Node FreeList::add(std::uint64_t identity) {
  const Node node = nodes_.make({.identity = identity, .references = 1});
  registered_.set(identity, node);
  ++in_use_;
  return node;
}

bool FreeList::reference(Node node) {
  if (nodes_[node].references++ > 0) return false;
  ++in_use_;
  const Node before = nodes_.previous(node);
  const Node after = nodes_.next(node);
  nodes_.unlink(node);
  // Adjacent runs of blank blocks are merged.
  if (before != kNone && after != kNone && nodes_[before].blank > 0 && nodes_[after].blank > 0) {
    nodes_[before].blank += nodes_[after].blank;
    nodes_.erase(after);
  }
  return true;
}

bool FreeList::release(Node node) {
  if (--nodes_[node].references > 0) return false;
  nodes_.link_back(node);
  --in_use_;
  return true;
}

}  // namespace spillway::instance
