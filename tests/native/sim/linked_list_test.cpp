// The linked list against plain sequences.
#include "sim/linked_list.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.h"
#include "sim/rng.h"

using spillway::sim::Draws;
using spillway::sim::LinkedList;
using spillway::sim::Stream;

namespace {

using List = LinkedList<int>;
constexpr List::Handle kNone = List::kNone;

struct Element {
  List::Handle handle;
  int value;
};

void check_equal(const List& list, const std::vector<Element>& plain) {
  check(list.size() == plain.size() && list.empty() == plain.empty(), "size");
  check(list.front() == (plain.empty() ? kNone : plain.front().handle), "the first");
  check(list.back() == (plain.empty() ? kNone : plain.back().handle), "the last");
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const List::Handle at = plain[i].handle;
    check(list[at] == plain[i].value, "the value of a handle");
    check(list.previous(at) == (i == 0 ? kNone : plain[i - 1].handle), "the one before");
    check(list.next(at) == (i + 1 == plain.size() ? kNone : plain[i + 1].handle), "the one behind");
  }
}

void random_use_equals_plain_sequences() {
  std::size_t longest = 0;
  for (std::uint64_t round = 0; round < 200; ++round) {
    Draws draws(round, Stream::router, 0);
    List list;
    std::vector<Element> plain;    // in the order
    std::vector<Element> outside;  // of the order
    const std::uint64_t erasing = 1 + draws.below(8);
    std::size_t most = 0;
    int next_value = 0;
    for (int i = 0; i < 500; ++i) {
      // A place in the order, including its end.
      const auto place = static_cast<std::ptrdiff_t>(draws.below(plain.size() + 1));
      const bool at_end = place == std::ssize(plain);
      const List::Handle there = at_end ? kNone : plain[static_cast<std::size_t>(place)].handle;
      const std::uint64_t action = draws.below(7 + erasing);
      const int value = next_value++;
      if (action == 0) {
        plain.push_back({list.push_back(value), value});
      } else if (action == 1) {
        plain.insert(plain.begin(), {list.push_front(value), value});
      } else if (action == 2) {
        plain.insert(plain.begin() + place, {list.insert(there, value), value});
      } else if (action == 3) {
        outside.push_back({list.make(value), value});
      } else if (action == 4 && !outside.empty()) {
        list.link(there, outside.back().handle);
        plain.insert(plain.begin() + place, outside.back());
        outside.pop_back();
      } else if (action == 5 && !at_end) {
        list.unlink(there);
        outside.push_back(plain[static_cast<std::size_t>(place)]);
        plain.erase(plain.begin() + place);
      } else if (action == 6 && !outside.empty()) {
        list.discard(outside.back().handle);
        outside.pop_back();
      } else if (action > 6 && !at_end) {
        list.erase(there);
        plain.erase(plain.begin() + place);
      }
      most = std::max(most, plain.size() + outside.size());
      check_equal(list, plain);
      for (const Element& element : outside) {
        check(list[element.handle] == element.value, "the value of one outside");
      }
    }
    longest = std::max(longest, most);
    // Slots are reused: no handle exceeds the maximum number of elements.
    for (int i = 0; i < 10; ++i) {
      const List::Handle made = list.push_back(0);
      most = std::max(most, list.size() + outside.size());
      check(made < static_cast<List::Handle>(most), "a slot that was left is used again");
    }
  }
  check(longest > 50, "there were long lists");
}

void an_element_can_move_to_the_end() {
  List list;
  const List::Handle a = list.push_back(1);
  const List::Handle b = list.push_back(2);
  list.unlink(a);
  list.link_back(a);
  check(list.front() == b && list.back() == a && list.size() == 2, "it is the last");
  check(list[a] == 1 && list.next(b) == a && list.previous(a) == b, "under the same handle");
}

}  // namespace

CASES(random_use_equals_plain_sequences, an_element_can_move_to_the_end);
