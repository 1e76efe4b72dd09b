#include "instance/kv_cache/free_list.h"

#include <algorithm>

namespace spillway::instance {

FreeList::Node FreeList::make(const Entry& entry) {
  if (unused_.empty()) {
    nodes_.push_back(entry);
    return static_cast<Node>(nodes_.size() - 1);
  }
  const Node node = unused_.back();
  unused_.pop_back();
  nodes_[index(node)] = entry;
  return node;
}

void FreeList::link_at_tail(Node node) {
  Entry& entry = nodes_[index(node)];
  entry.previous = tail_;
  entry.next = kNone;
  (tail_ == kNone ? head_ : nodes_[index(tail_)].next) = node;
  tail_ = node;
}

void FreeList::unlink(Node node) {
  const Entry& entry = nodes_[index(node)];
  (entry.previous == kNone ? head_ : nodes_[index(entry.previous)].next) = entry.next;
  (entry.next == kNone ? tail_ : nodes_[index(entry.next)].previous) = entry.previous;
  // Runs of blank blocks that meet become one.
  const Node before = entry.previous;
  const Node after = entry.next;
  if (before == kNone || after == kNone || nodes_[index(before)].blank == 0 ||
      nodes_[index(after)].blank == 0) {
    return;
  }
  nodes_[index(before)].blank += nodes_[index(after)].blank;
  nodes_[index(before)].next = nodes_[index(after)].next;
  (nodes_[index(before)].next == kNone ? tail_
                                       : nodes_[index(nodes_[index(before)].next)].previous) =
      before;
  discard(after);
}

void FreeList::forget(Node node) {
  const std::uint64_t identity = nodes_[index(node)].identity;
  // Rolling back goes by identity, even if another block is registered under it by now.
  if (allocation_ == Allocation::roll_back || registered_.find(identity) == node) {
    registered_.erase(identity);
  }
}

void FreeList::take(std::int64_t blocks) {
  while (blocks > 0) {
    const Node node = head_;
    Entry& entry = nodes_[index(node)];
    if (entry.blank > blocks) {
      entry.blank -= blocks;
      return;
    }
    if (entry.blank == 0) forget(node);
    blocks -= std::max<std::int64_t>(entry.blank, 1);
    unlink(node);
    discard(node);
  }
}

std::int64_t FreeList::blank_at_head() const {
  return head_ == kNone ? 0 : nodes_[index(head_)].blank;
}

void FreeList::append_blank(std::int64_t blocks) {
  if (blocks == 0) return;
  if (tail_ != kNone && nodes_[index(tail_)].blank > 0) {
    nodes_[index(tail_)].blank += blocks;
  } else {
    link_at_tail(make({.blank = blocks}));
  }
}

void FreeList::append(std::uint64_t identity) {
  const Node node = make({.identity = identity});
  registered_.set(identity, node);
  link_at_tail(node);
}

FreeList::Node FreeList::add(std::uint64_t identity) {
  const Node node = make({.identity = identity, .references = 1});
  registered_.set(identity, node);
  ++in_use_;
  return node;
}

bool FreeList::reference(Node node) {
  if (nodes_[index(node)].references++ > 0) return false;
  unlink(node);
  ++in_use_;
  return true;
}

bool FreeList::release(Node node) {
  if (--nodes_[index(node)].references > 0) return false;
  link_at_tail(node);
  --in_use_;
  return true;
}

}  // namespace spillway::instance
