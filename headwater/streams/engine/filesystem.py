"""A local file system for checkpoints that starts no processes.

Hadoop's own sets the permissions of every file it makes by running ``chmod``, and a batch makes several: on
small batches that is most of the time. This one asks Java to do it. It is compiled in the running JVM by the
compiler that Spark generates its own code with, so that nothing has to be built or fetched.

A file becomes visible by a rename, as with Hadoop's: a kill at any time leaves whole files. Neither of them
syncs to the disk: after a power cut the newest files of a checkpoint may be missing or empty.
"""

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
CLASS = "headwater.PlainFileSystem"

# What RocksDB uploads and fetches for a snapshot of state goes through `FileSystem.getLocal`, which takes only a
# `LocalFileSystem`. The checksum files of that class are left out: Spark's own files have checksums, or are small.
_SOURCE = """
package headwater;

public class PlainFileSystem extends org.apache.hadoop.fs.LocalFileSystem {
    public PlainFileSystem() {
        super(new Files());
        setWriteChecksum(false);
        setVerifyChecksum(false);
    }

    public static class Files extends org.apache.hadoop.fs.RawLocalFileSystem {
        public void setPermission(org.apache.hadoop.fs.Path path,
                                  org.apache.hadoop.fs.permission.FsPermission permission)
                throws java.io.IOException {
            int mode = permission.toShort();
            StringBuilder text = new StringBuilder();
            for (int bit = 8; bit >= 0; bit--) {
                text.append((mode & (1 << bit)) != 0 ? "xwr".charAt(bit % 3) : '-');
            }
            java.nio.file.Files.setPosixFilePermissions(
                pathToFile(path).toPath(),
                java.nio.file.attribute.PosixFilePermissions.fromString(text.toString()));
        }
    }
}
"""


def use_plain_files(spark: SparkSession) -> bool:
    """Lets the driver of `spark` write ``file:`` paths without starting processes; False when it cannot.

    Only for a local master: executors in other processes would not know the class.
    """
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        settings = context.hadoopConfiguration()
        settings.setClassLoader(compiler.getClassLoader())
        settings.set("fs.file.impl", CLASS)
        # Whoever asked before has Hadoop's own in the cache.
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()
        found = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI.create("file:///"), settings)
        return bool(found.getClass().getName() == CLASS)
    except Py4JError:
        return False
