// shale.files/1 over Folder: a hook works on the one folder it was lent, and leaves nothing open behind.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/checkpoint/folder.h"
#include "core/loader/abi.h"

struct shale_file {
  std::unique_ptr<shale::File> file;
  bool writing = false;
};

struct shale_folder {
  shale::Folder* folder = nullptr;
  bool writing = false, renaming = false;                          // what the hook may do
  std::map<const shale_file*, std::unique_ptr<shale_file>> files;  // open ones
  std::deque<std::vector<std::string>> lists;                      // one per full listing: names handed out stay valid
};

namespace shale {

// Any thread; one folder by one thread at a time. Handles that are not open are refused, not followed.
class FilesService {
 public:
  enum class Use { read, write, finish };

  FilesService();
  FilesService(const FilesService&) = delete;
  FilesService& operator=(const FilesService&) = delete;
  const shale_files* table() const { return &table_; }

  class Lent {  // for the time of one hook
   public:
    Lent(FilesService&, Folder&, Use);
    ~Lent();  // closes what the hook left open
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    shale_folder* handle() { return &folder_; }

   private:
    FilesService& service_;
    shale_folder folder_;
  };

 private:
  struct Calls;  // the functions of the table
  shale_status* add_file(shale_folder*, std::unique_ptr<File>, bool writing, shale_file** out);
  bool remove_file(const shale_file*);
  bool lent(const shale_folder*);
  bool is_open(const shale_file*);

  shale_files table_;
  std::mutex mutex_;
  std::set<shale_folder*> folders_;
};

}  // namespace shale
