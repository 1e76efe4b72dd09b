#include "sim/event_queue.h"

#include <algorithm>

namespace spillway::sim {

namespace {
constexpr std::size_t kArity = 4;
}

bool EventQueue::before(const Entry& a, const Entry& b) {
  if (a.event.time != b.event.time) return a.event.time < b.event.time;
  if (a.event.phase != b.event.phase) return a.event.phase < b.event.phase;
  if (a.event.tie != b.event.tie) return a.event.tie < b.event.tie;
  return a.serial < b.serial;
}

void EventQueue::push(const Event& event) {
  const Entry entry{event, next_serial_++};
  std::size_t hole = heap_.size();
  heap_.push_back(entry);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / kArity;
    if (!before(entry, heap_[parent])) break;
    heap_[hole] = heap_[parent];
    hole = parent;
  }
  heap_[hole] = entry;
}

Event EventQueue::pop() {
  const Event first = heap_.front().event;
  const Entry last = heap_.back();
  heap_.pop_back();
  ++popped_;
  if (heap_.empty()) return first;

  std::size_t hole = 0;
  for (;;) {
    const std::size_t begin = hole * kArity + 1;
    if (begin >= heap_.size()) break;
    const std::size_t end = std::min(begin + kArity, heap_.size());
    std::size_t smallest = begin;
    for (std::size_t child = begin + 1; child < end; ++child) {
      if (before(heap_[child], heap_[smallest])) smallest = child;
    }
    if (!before(heap_[smallest], last)) break;
    heap_[hole] = heap_[smallest];
    hole = smallest;
  }
  heap_[hole] = last;
  return first;
}

}  // namespace spillway::sim
