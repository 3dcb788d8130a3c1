# What a machine of the lab does when it has booted: its address, an sshd in a slice of its own, and wait.
set -e
name=$(cat /proc/sys/kernel/hostname)
address=$(sed -n "s/ $name\$//p" hosts)
cat hosts >>/etc/hosts
for link in /sys/class/net/*; do
    link=${link##*/}
    [ "$link" = lo ] || ip address add "$address/24" dev "$link"
    ip link set "$link" up
done
chown -R 0:0 keys
mkdir -p /run/sshd
systemd-run --quiet --unit=logins --slice=logins.slice /usr/sbin/sshd -D -e -f /job/keys/sshd_config
exec sleep infinity
